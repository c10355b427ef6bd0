"""Every code of every number format, against hand values and against torch."""

import numpy as np
import pytest

from sentinel_engine.rowstore.geometry import FP4, FP8
from sentinel_engine.rowstore.numbers import E2M1_PAIRS, E4M3, UE8M0, dequantise


def test_hand_values() -> None:
    assert E4M3[0x7E] == 448 and E4M3[0xFE] == -448
    assert np.isnan(E4M3[[0x7F, 0xFF]]).all() and not np.isinf(E4M3).any()
    assert E4M3[1] == 2.0**-9 and E4M3[0x08] == 2.0**-6
    assert UE8M0[127] == 1 and UE8M0[0] == 2.0**-127 and np.isnan(UE8M0[255])
    assert E2M1_PAIRS[0x7F].tolist() == [-6.0, 6.0]


def test_every_pair_of_fp4_codes() -> None:
    """False: experts are expanded wrongly, in training and in the engine alike."""
    magnitudes = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    values = magnitudes + [-one for one in magnitudes]

    got = E2M1_PAIRS.tolist()

    assert got == [[values[byte % 16], values[byte // 16]] for byte in range(256)]


def test_e4m3_codes_equal_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    codes = torch.arange(256, dtype=torch.uint8)

    reference = codes.view(torch.float8_e4m3fn).float().numpy()

    np.testing.assert_array_equal(E4M3, reference)


def test_ue8m0_scales_equal_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not hasattr(torch, "float8_e8m0fnu"):
        pytest.skip("this torch has no float8_e8m0fnu")
    codes = torch.arange(256, dtype=torch.uint8)

    reference = codes.view(torch.float8_e8m0fnu).float().numpy()

    np.testing.assert_array_equal(UE8M0, reference)


def test_every_code_with_every_scale_equals_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    codes = np.tile(np.arange(256, dtype=np.uint8), (256, 1))
    scales = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 8, axis=1)

    got = dequantise(codes, scales, FP8)

    values = torch.from_numpy(codes).view(torch.float8_e4m3fn).float().reshape(256, 8, 32)
    factors = torch.pow(2.0, torch.from_numpy(scales).double() - 127).float()
    factors[255] = float("nan")
    with np.errstate(over="ignore"):
        reference = (values * factors[:, :, None]).reshape(256, 256).numpy()
    np.testing.assert_array_equal(got, reference)


def test_fp4_rows_unpack_the_low_nibble_first() -> None:
    codes = np.full((1, 128), 0x21, dtype=np.uint8)
    scales = np.full((1, 8), 128, dtype=np.uint8)

    got = dequantise(codes, scales, FP4)

    assert got.shape == (1, 256)
    assert got[0, :4].tolist() == [1.0, 2.0, 1.0, 2.0]
