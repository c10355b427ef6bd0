"""The number formats of a row, as tables: e4m3fn and e2m1 codes, ue8m0 scales.

Dequantising is two table look-ups and one multiplication; converting element by element in
single precision is an order of magnitude slower and gives the same numbers.
"""

import numpy as np
from numpy.typing import NDArray

from .geometry import CodeType, RowFormat

_E4M3_BIAS = 7
_UE8M0_BIAS = 127
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def _e4m3_value(code: int) -> float:
    """Sign, four exponent bits, three mantissa bits; no infinities, 0x7f and 0xff are NaN."""
    sign = -1.0 if code & 0x80 else 1.0
    exponent, mantissa = (code >> 3) & 15, code & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    if exponent == 0:
        return float(sign * mantissa * 2.0 ** (1 - _E4M3_BIAS - 3))
    return float(sign * (1 + mantissa / 8) * 2.0 ** (exponent - _E4M3_BIAS))


def _ue8m0_value(code: int) -> float:
    """A power of two; 255 is NaN."""
    return float("nan") if code == 255 else 2.0 ** (code - _UE8M0_BIAS)


def _e2m1_value(code: int) -> float:
    return -_E2M1[code & 7] if code & 8 else _E2M1[code & 7]


E4M3 = np.array([_e4m3_value(code) for code in range(256)], dtype=np.float32)
UE8M0 = np.array([_ue8m0_value(code) for code in range(256)], dtype=np.float32)
# One entry per byte: the low nibble is the earlier of the two codes.
E2M1_PAIRS = np.array(
    [(_e2m1_value(byte & 15), _e2m1_value(byte >> 4)) for byte in range(256)], dtype=np.float32
)


def dequantise(
    codes: NDArray[np.uint8], scales: NDArray[np.uint8], row_format: RowFormat
) -> NDArray[np.float32]:
    """Rows of codes `(n, code_bytes)` and scales `(n, scale_bytes)` as float32 values."""
    if row_format.code_type is CodeType.E4M3:
        values = E4M3[codes]
    else:
        values = E2M1_PAIRS[codes].reshape(codes.shape[0], -1)
    blocks = values.reshape(codes.shape[0], -1, row_format.codes_per_scale)
    with np.errstate(over="ignore"):  # the formats can express more than float32 can hold
        scaled: NDArray[np.float32] = blocks * UE8M0[scales][:, :, None]
    return scaled.reshape(codes.shape[0], -1)
