"""Writes a node's row-store slices: `python -m sentinel_engine.stage --model DIR --world N OUT`.

Ranks take hash heads in turn, so that each reads its share of every n-gram order. With
`--geometry` the slices are sparse files of published size, in which only the rows of the n-grams
of a sample text are written, with the values that the model's own table has for them.
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from .config import GEOMETRIES, TINY_MODEL, EngineConfig, slice_path
from .modelfile import BOS, NgramHash, Tables, load_model_config, with_history
from .rowstore.errors import BadTable
from .rowstore.geometry import Header
from .rowstore.manifest import read_manifest
from .rowstore.reader import read_header
from .rowstore.writer import Provenance, Rows, RowSource, write_table

SAMPLE = "Return a list of the "


def model_digest(folder: Path) -> bytes:
    """SHA-256 of the weights: slices name the model that they were cut from."""
    with (folder / "model.safetensors").open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def stage(config: EngineConfig, ranks: tuple[int, ...], sample: str = SAMPLE) -> list[Path]:
    """Write the slices of these ranks that are missing; returns all their paths."""
    folder = Path(config.model)
    model, digest = load_model_config(folder), model_digest(folder)
    if config.world > model.engram_heads:
        raise BadTable(f"{model.name} has {model.engram_heads} hash heads: at most as many ranks")
    Path(config.rows).mkdir(parents=True, exist_ok=True)
    tables, paths = Tables(model, config.geometry_rows), []
    source = {"kind": "model", "name": model.name}
    if config.geometry:
        source |= {"geometry": config.geometry, "sample": sample}
    for layer in model.engram_layers:
        heads = [one.count for one in tables.heads(layer)]
        origin = Provenance(hash_parameters={"heads": heads}, source=source, source_digest=digest)
        for rank in ranks:
            path = slice_path(config, layer, rank)
            paths.append(path)
            if _is_staged(path, origin):
                continue
            part = tables.slice(layer, rank, config.world)
            header = Header(layer=layer, row_format=tables.row_format, slice=part)
            named = _named(tables, layer, rank, config.world, sample) if config.geometry else None
            rows = _source(folder, header, model.engram_dim, named)
            only = None if named is None else named[0]
            write_table(path, header, rows, provenance=origin, only=only)
    return paths


def mismatch(path: Path, digest: bytes) -> str:
    """Why a slice cannot serve the model with this digest; empty when it can."""
    try:
        header = read_header(path)
    except (OSError, BadTable) as error:
        return str(error)
    return "" if header.source_digest == digest else f"{path} was cut from another model"


def _is_staged(path: Path, origin: Provenance) -> bool:
    try:
        return not mismatch(path, origin.source_digest) and (
            read_manifest(path).source == origin.source
        )
    except BadTable:
        return False


Named = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Sorted row ids of a geometry, and which rows of the model's own table they hold."""


def _named(tables: Tables, layer: int, rank: int, world: int, sample: str) -> Named:
    """The rows that the n-grams of a text name, the same value in all heads that go together."""
    text = with_history([BOS, *sample.encode()], 0)
    names, own = (
        NgramHash(which, layer, rank=rank, world=world).ids(text)
        for which in (tables, Tables(tables.model))
    )
    names, first = np.unique(names, return_index=True)
    return names, own.repeat(tables.heads_together, axis=1).reshape(-1)[first]


def _source(folder: Path, header: Header, dim: int, named: Named | None) -> RowSource:
    """Rows of the model's table under their own ids, or under other names and else zeros."""
    with safe_open(folder / "model.safetensors", "np") as file:
        table: NDArray[np.uint8] = file.get_tensor(f"layers.{header.layer}.engram.table")

    def rows(ids: NDArray[np.int64]) -> Rows:
        if named is None:
            return table[ids, :dim], table[ids, dim:]
        names, own = named
        at = np.searchsorted(names, ids).clip(max=len(names) - 1)
        hit = names[at] == ids
        found = table[own[at[hit]]]
        codes = np.zeros((len(ids), header.row_format.code_bytes), np.uint8)
        scales = np.zeros((len(ids), header.row_format.scale_bytes), np.uint8)
        codes[hit, :dim], scales[hit, : found.shape[1] - dim] = found[:, :dim], found[:, dim:]
        return codes, scales

    return rows


def main() -> None:
    """Stage all ranks, or those given, and print the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--model", default=str(TINY_MODEL))
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--rank", type=int, action="append")
    parser.add_argument("--geometry", default="",
                        help=f"{', '.join(GEOMETRIES)}, or least rows of a head")  # fmt: skip
    parser.add_argument("--sample", default=SAMPLE, help="text whose n-grams get their rows")
    given = parser.parse_args()
    config = EngineConfig(
        rows=given.out, runtime_dir=given.out, model=given.model, world=given.world,
        geometry=given.geometry,
    )  # fmt: skip
    for path in stage(config, tuple(given.rank or range(given.world)), given.sample):
        print(path)


if __name__ == "__main__":
    main()
