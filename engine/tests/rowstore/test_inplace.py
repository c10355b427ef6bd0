"""Tables served from a checkpoint without repacking."""

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from tables import expected_rows

from sentinel_engine.rowstore import BadTable, Store
from sentinel_engine.rowstore.cli import main
from sentinel_engine.rowstore.inplace import find_table, read_tensors

ROWS, LAYER = 1003, 7
IDS = np.array([0, 1, 15, 16, 500, ROWS - 1, -1], dtype=np.int64)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], padding: int) -> None:
    entries, at = {}, 0
    for name, array in tensors.items():
        entries[name] = {"dtype": "U8", "shape": list(array.shape),
                         "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    header = json.dumps(entries).encode()
    header += b" " * (-(len(header) + 8) % 4096 + padding)
    path.write_bytes(
        struct.pack("<Q", len(header)) + header + b"".join(a.tobytes() for a in tensors.values())
    )


def tensors(code_bytes: int = 256) -> dict[str, np.ndarray]:
    rows = expected_rows(np.arange(ROWS), row_bytes=code_bytes + 8)
    return {"codes": rows[:, :code_bytes].copy(), "scales": rows[:, code_bytes:].copy()}


@pytest.mark.parametrize("mode", ["nvme", "ram", "legacy"])
@pytest.mark.parametrize("padding", [0, 8, 2056])
@pytest.mark.parametrize("code_bytes", [256, 128])
def test_rows_equal_the_checkpoint(
    tmp_path: Path, mode: str, padding: int, code_bytes: int
) -> None:
    """Aligned tensors take one 4 KiB read a row, others one of 8 KiB."""
    path = tmp_path / "model.safetensors"
    write_safetensors(path, tensors(code_bytes), padding)
    table = find_table(path, "codes", "scales", LAYER)

    with Store(table, mode=mode, lanes=1, reserve_bytes=0) as store:
        got = store.gather(LAYER, IDS)

    assert got.status == "ok"
    np.testing.assert_array_equal(got.rows, expected_rows(IDS, row_bytes=code_bytes + 8))


def test_scales_may_lie_in_another_shard(tmp_path: Path) -> None:
    both = tensors()
    first, second = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    write_safetensors(first, {"codes": both["codes"]}, 8)
    write_safetensors(second, {"scales": both["scales"]}, 0)
    table = find_table(first, "codes", "scales", LAYER, second)

    with Store(table, mode="nvme", lanes=1) as store:
        np.testing.assert_array_equal(store.gather(LAYER, IDS).rows, expected_rows(IDS))


def test_packing_a_checkpoint_gives_the_same_rows(tmp_path: Path) -> None:
    path, packed = tmp_path / "model.safetensors", tmp_path / "rank0.rws"
    write_safetensors(path, tensors(), 8)
    status = main(["pack", str(packed), "--layer", "7", "--safetensors", str(path), "--codes",
                   "codes", "--scales", "scales", "--range", "0:10:500", "--range", "2:700:300"])
    ids = np.array([10, 509, 700, 999], np.int64)

    assert status == 0 and main(["verify", str(packed)]) == 0
    with Store(packed, mode="nvme", lanes=1) as store:
        np.testing.assert_array_equal(store.gather(LAYER, ids).rows, expected_rows(ids))
        assert store.gather(LAYER, np.array([9], np.int64)).status == "bad_id"


def test_wrong_checkpoints_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_safetensors(path, tensors(), 0)
    with pytest.raises(BadTable, match="no tensor other"):
        find_table(path, "other", "scales", LAYER)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadTable, match="outside the file"):
        read_tensors(path)
    path.write_bytes(b"\0" * 100)
    with pytest.raises(BadTable, match="not a safetensors file"):
        read_tensors(path)
