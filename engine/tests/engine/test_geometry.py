"""Tables of published size, of which little was ever written, under engines that serve."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from clusters import Start, settings

from sentinel_engine.config import TINY_MODEL, BadConfig, parse_config, slice_path
from sentinel_engine.modelfile import BOS, NgramHash, Tables, load_model_config, with_history
from sentinel_engine.rowstore import telemetry_layout as layout
from sentinel_engine.rowstore.reader import allocated_bytes, read_header
from sentinel_engine.stage import stage

GEOMETRY = "deepseek-v4.1-flash"
ROWS = (384_006_168, 384_016_682)
PROMPT, OTHER = "Return a list of ", "def main("


def test_a_geometry_has_the_published_numbers_of_rows() -> None:
    """False: sizes, offsets and hit rates are those of some other table."""
    model = load_model_config(TINY_MODEL)
    tables = Tables(model, parse_config(
        {"rows": "r", "runtime_dir": "t", "geometry": GEOMETRY}).geometry_rows)
    whole = [tables.heads(layer) for layer in model.engram_layers]
    assert tuple(sum(one.count for one in heads) for heads in whole) == ROWS
    assert all(len(heads) == 24 for heads in whole) and tables.row_format.row_bytes == 264
    assert len({one.count for heads in whole for one in heads}) == 48
    for world in (1, 2, 3, 4, 12):
        ranks = [tables.slice(1, rank, world).ranges for rank in range(world)]
        assert sorted(one.head for part in ranks for one in part) == list(range(24))
        assert world > 4 or all({one.head // 8 for one in part} == {0, 1, 2} for part in ranks)


def test_ids_reach_all_of_a_table_and_agree_between_ranks() -> None:
    """False: only a corner of the rows is ever asked for, or ranks hash differently."""
    tables = Tables(load_model_config(TINY_MODEL), 16_000_000)
    text = np.random.default_rng(3).integers(0, 256, 4000).tolist()
    tokens = with_history([BOS, *text], 0)
    for layer, rows in zip(tables.model.engram_layers, ROWS, strict=True):
        heads = tables.heads(layer)
        ids = NgramHash(tables, layer).ids(tokens)
        for k, head in enumerate(heads):
            inside = ids[:, k] - head.start
            assert inside.min() >= 0 and inside.max() < head.count
            assert inside.max() - inside.min() > 0.9 * head.count
        assert ids.max() > 0.99 * rows
        parts = [NgramHash(tables, layer, rank=rank, world=3).ids(tokens) for rank in range(3)]
        order = np.argsort([one.head for rank in range(3)
                            for one in tables.slice(layer, rank, 3).ranges])
        np.testing.assert_array_equal(np.concatenate(parts, 1)[:, order], ids)


def test_two_ranks_serve_from_tables_of_published_size(start: Start) -> None:
    """False: the mode does not serve; rows that are there are not the ones that the n-grams of the
    text name; rows that are not there are not zeros; or the disk pays for rows that are not there.
    """
    dense = start()
    expected, other = dense.text(PROMPT, 40), dense.text(OTHER, 40)
    assert dense.head.end() == 0
    sparse = start(geometry=GEOMETRY, sample=PROMPT + expected)
    assert sparse.text(PROMPT, 40) == expected
    without = sparse.text(OTHER, 40)
    assert len(without) == 40 and without != other
    for rank in range(2):
        seen = layout.read_record(sparse.page(rank), "counters")
        # 24 rows a token and layer, and no page that was refused.
        assert seen["reads_completed"] > 2 * 12 * 80 and seen["crc_failures"] == 0
    slices = [slice_path(sparse.config, layer, rank) for layer in (1, 2) for rank in range(2)]
    assert sum(read_header(path).slice.rows for path in slices) == sum(ROWS)
    assert sum(path.stat().st_size for path in slices) > 195 << 30
    assert sum(map(allocated_bytes, slices)) < 16 << 20
    for mode, status in (("ram", "no_memory"), ("nvme", "ok")):
        reply = sparse.control("/rowstore/mode", {"mode": mode})
        assert (reply["status"], reply["modes"]) == (status, ["nvme", "nvme"])
    assert sparse.text(PROMPT, 40) == expected
    assert sparse.head.end() == 0


def test_a_small_geometry_also_serves_from_ram(start: Start) -> None:
    """False: modes of the store can only be compared on the model's own table."""
    small = start(world=1, geometry="3001", sample=OTHER)
    text = small.text(OTHER, 30)
    assert small.control("/rowstore/mode", {"mode": "ram"})["modes"] == ["ram"]
    assert small.text(OTHER, 30) == text
    assert small.head.end() == 0


def test_another_sample_is_staged_anew(tmp_path: Path) -> None:
    """False: a sample that was asked for is silently not there."""
    config = settings(tmp_path, geometry="3001")
    digests = []
    for sample in ("one", "one", "two"):
        (path, *_) = stage(config, (0, 1), sample)
        digests.append((read_header(path).manifest_digest, path.stat().st_ino))
    assert digests[0] == digests[1] != digests[2]
    own = replace(config, geometry="")
    assert stage(own, (0,))[0] != path and not read_header(stage(own, (0,))[0]).sparse


@pytest.mark.parametrize("name", ["deepseek", "0", "-5", "4294967296"])
def test_an_unknown_geometry_is_refused(name: str) -> None:
    """False: a misspelt name serves the model's own table, or writes a sparse file in its place."""
    with pytest.raises(BadConfig, match=r"deepseek-v4\.1-flash or a number of rows"):
        parse_config({"rows": "r", "runtime_dir": "t", "geometry": name})
