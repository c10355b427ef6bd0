"""ctypes binding of the C++ core; see `engine/rowstore/rowstore.h` for the contracts."""

import ctypes
from ctypes import POINTER, byref, c_char, c_char_p, c_uint32, c_uint64, c_void_p
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .errors import StoreRefused

ABI_VERSION = 1
OK, DEADLINE, PENDING = 0, 2, 13
LIBRARY = "librowstore.so"
INJECT_LIBRARY = "librowstore_inject.so"


class Request(ctypes.Structure):
    """`rs_request`: where rows go, and what came of it."""

    _fields_ = (
        ("ids", c_void_p), ("codes", c_void_p), ("scales", c_void_p),
        ("codes_stride", c_uint64), ("scales_stride", c_uint64), ("deadline_ns", c_uint64),
        ("tag", c_uint64), ("count", c_uint32), ("layer", c_uint32), ("lane", c_uint32),
        ("policy", c_uint32), ("status", c_uint32), ("hits", c_uint32), ("misses", c_uint32),
        ("unique", c_uint32), ("degraded", c_uint32), ("mode", c_uint32),
        ("elapsed_ns", c_uint64), ("sequence", c_uint64),
    )  # fmt: skip


class ModeTicket(ctypes.Structure):
    """`rs_mode_ticket`: the state of the last mode switch."""

    _fields_ = (
        ("status", c_uint32), ("mode", c_uint32), ("done_bytes", c_uint64),
        ("total_bytes", c_uint64), ("elapsed_ns", c_uint64), ("reason", c_char * 192),
    )  # fmt: skip


_HANDLE = c_void_p
_SIGNATURES: dict[str, tuple[type | None, tuple[object, ...]]] = {
    "rs_abi_version": (c_uint32, ()),
    "rs_last_error": (c_char_p, ()),
    "rs_status_name": (c_char_p, (c_uint32,)),
    "rs_open": (c_uint32, (c_char_p, POINTER(_HANDLE))),
    "rs_close": (c_uint32, (_HANDLE,)),
    "rs_info": (c_uint64, (_HANDLE, c_char_p, c_uint64)),
    "rs_gather": (c_uint32, (_HANDLE, POINTER(Request))),
    "rs_submit": (c_uint32, (_HANDLE, POINTER(Request), POINTER(c_uint64))),
    "rs_wait": (c_uint32, (_HANDLE, c_uint32, c_uint64, c_uint64, POINTER(Request))),
    "rs_hint": (c_uint32, (_HANDLE, c_uint32, c_void_p, c_uint32)),
    "rs_selftest": (c_uint32, (_HANDLE, c_uint32)),
    "rs_node_create": (
        c_uint32,
        (_HANDLE, POINTER(Request), POINTER(c_uint32), POINTER(c_uint32), POINTER(c_uint64),
         POINTER(_HANDLE)),
    ),
    "rs_node_destroy": (None, (_HANDLE,)),
    "rs_hostfn": (None, (_HANDLE,)),
    "rs_lane_bind_flags": (c_uint32, (_HANDLE, _HANDLE, POINTER(c_uint32), POINTER(c_uint32))),
    "rs_lane_unbind_flags": (c_uint32, (_HANDLE, c_uint32)),
    "rs_lane_bind_stamps": (c_uint32, (_HANDLE, c_uint32, POINTER(c_uint64), POINTER(c_uint64))),
    "rs_lane_enqueued": (c_uint32, (_HANDLE, c_uint32)),
    "rs_lane_release": (c_uint32, (_HANDLE, c_uint32, c_uint32)),
    "rs_mode_set": (c_uint32, (_HANDLE, c_char_p)),
    "rs_mode_poll": (c_uint32, (_HANDLE, POINTER(ModeTicket))),
    "rs_callback_lane_create": (c_uint32, (_HANDLE, c_uint32, POINTER(_HANDLE))),
    "rs_callback_lane_destroy": (None, (_HANDLE,)),
    "rs_callback_lane_launch": (c_uint32, (_HANDLE, _HANDLE, POINTER(c_uint64))),
    "rs_callback_lane_call": (c_uint32, (_HANDLE, c_void_p, c_void_p, POINTER(c_uint64))),
    "rs_callback_lane_wait": (c_uint32, (_HANDLE, c_uint64, c_uint64)),
    "rs_spin_for_credit": (None, (c_void_p,)),
    "rs_inject": (c_uint32, (_HANDLE, c_char_p)),
    "rs_crc32c": (c_uint32, (c_void_p, c_uint64, c_uint32)),
    "rs_formula_rows": (None, (c_uint32, c_void_p, c_uint64, c_uint32, c_void_p)),
    "rs_encode_pages": (
        c_uint32,
        (c_uint32, c_uint32, c_uint32, c_uint32, c_void_p, c_uint64, c_void_p, c_void_p, c_void_p),
    ),
    "rs_verify_pages": (
        c_uint64, (c_uint32, c_void_p, c_uint64, c_void_p, POINTER(c_uint64)),
    ),
    "rs_fill_image": (c_uint32, (c_char_p, c_void_p, c_uint64, c_uint32, POINTER(c_uint64))),
    "rs_ram_fit": (c_uint32, (c_uint64, c_uint64, c_char_p, c_uint64)),
}


def _missing_core_advice(path: Path) -> str:
    """What to do: source beside `setup.py` hides an installed engine from whoever starts there."""
    source = path.parents[2]
    if not (source / "setup.py").exists():
        return "run `pip install --force-reinstall ./engine`"
    return f"start from another folder than {source}, or run `pip install --editable {source}`"


@cache
def load(library: str = LIBRARY) -> ctypes.CDLL:
    """The core, with argument types set; one copy per process and library name."""
    path = Path(__file__).with_name(library)
    if not path.exists():
        advice = _missing_core_advice(path)
        raise StoreRefused("config", f"{path.parent} has no built core: {advice}")
    try:
        core = ctypes.CDLL(str(path))
    except OSError as error:
        raise StoreRefused(
            "config", f"{path.name} cannot be loaded ({error}); reinstall the engine"
        ) from error
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(core, name)
        function.restype = result
        function.argtypes = arguments
    if core.rs_abi_version() != ABI_VERSION:
        raise StoreRefused("config", f"{path.name} is of another version; reinstall the engine")
    return core


def check(core: ctypes.CDLL, status: int) -> None:
    """Raise StoreRefused unless `status` is ok."""
    if status == OK:
        return
    text = core.rs_last_error().decode()
    name = core.rs_status_name(status).decode()
    raise StoreRefused(name, text or f"the row store answered '{name}'")


def address(array: NDArray[np.generic]) -> int:
    """Address of the first element of a contiguous array."""
    assert array.flags.c_contiguous
    return int(array.ctypes.data)


def crc32c(data: bytes | memoryview | NDArray[np.uint8], seed: int = 0) -> int:
    """CRC-32C; chain by passing the previous result as `seed`."""
    array = np.frombuffer(data, dtype=np.uint8)
    return int(load().rs_crc32c(address(array), array.nbytes, seed))


def formula_rows(layer: int, ids: NDArray[np.int64], row_bytes: int) -> NDArray[np.uint8]:
    """Rows whose content is a pure function of (layer, global id): `(n, row_bytes)`."""
    rows = np.empty((len(ids), row_bytes), dtype=np.uint8)
    ids = np.ascontiguousarray(ids, dtype=np.int64)
    load().rs_formula_rows(layer, address(ids), len(ids), row_bytes, address(rows))
    return rows


def encode_pages(
    layer: int,
    generation: int,
    ids: NDArray[np.int64],
    codes: NDArray[np.uint8],
    scales: NDArray[np.uint8],
    rows_per_page: int,
) -> NDArray[np.uint8]:
    """Data pages `(pages, 4096)` for rows whose global ids are `ids`."""
    pages = np.empty((-(-len(ids) // rows_per_page), 4096), dtype=np.uint8)
    codes, scales = np.ascontiguousarray(codes), np.ascontiguousarray(scales)
    core = load()
    status = core.rs_encode_pages(
        codes.shape[1], scales.shape[1], layer, generation, address(ids), len(ids),
        address(codes), address(scales), address(pages),
    )  # fmt: skip
    check(core, status)
    return pages


def verify_pages(
    layer: int, first_ids: NDArray[np.int64], pages: NDArray[np.uint8]
) -> tuple[int, int]:
    """Number of bad pages and index of the first; a page is bad if damaged or misplaced."""
    first_bad = c_uint64(0)
    bad = load().rs_verify_pages(
        layer, address(first_ids), len(first_ids), address(pages), byref(first_bad)
    )
    return int(bad), int(first_bad.value)


def ram_fit(table_bytes: int, reserve_bytes: int) -> tuple[bool, str]:
    """Whether a table may be locked in RAM now, and why."""
    reason = ctypes.create_string_buffer(512)
    status = load().rs_ram_fit(table_bytes, reserve_bytes, reason, len(reason))
    return status == OK, reason.value.decode()
