"""Writes a node's row-store slices: `python -m sentinel_engine.stage --model DIR --world N OUT`.

Ranks take hash heads in turn, so that each reads its share of every n-gram order.
"""

import argparse
import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from .config import TINY_MODEL, EngineConfig, slice_path
from .modelfile import ModelConfig, head_ranges, load_model_config
from .rowstore.errors import BadTable
from .rowstore.geometry import Header, HeadRange, strided_heads
from .rowstore.reader import read_header
from .rowstore.writer import Provenance, Rows, write_table


def model_digest(folder: Path) -> bytes:
    """SHA-256 of the weights: slices name the model that they were cut from."""
    with (folder / "model.safetensors").open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()


def stage(config: EngineConfig, ranks: tuple[int, ...]) -> list[Path]:
    """Write the slices of these ranks that are missing; returns all their paths."""
    folder = Path(config.model)
    model, digest = load_model_config(folder), model_digest(folder)
    if config.world > model.engram_heads:
        raise BadTable(f"{model.name} has {model.engram_heads} hash heads: at most as many ranks")
    Path(config.rows).mkdir(parents=True, exist_ok=True)
    heads, paths = head_ranges(model), []
    for layer in model.engram_layers:
        for rank in ranks:
            path = slice_path(config, layer, rank)
            paths.append(path)
            if path.exists() and not mismatch(path, digest):
                continue
            part = strided_heads(heads, config.world, rank)
            header = Header(
                layer=layer, row_format=model.row_format, slice=part, source_digest=digest
            )
            _packed(path, header, folder, model, heads)
    return paths


def mismatch(path: Path, digest: bytes) -> str:
    """Why a slice cannot serve the model with this digest; empty when it can."""
    try:
        header = read_header(path)
    except (OSError, BadTable) as error:
        return str(error)
    return "" if header.source_digest == digest else f"{path} was cut from another model"


def _packed(
    path: Path, header: Header, folder: Path, model: ModelConfig, heads: tuple[HeadRange, ...]
) -> None:
    with safe_open(folder / "model.safetensors", "np") as file:
        table: NDArray[np.uint8] = file.get_tensor(f"layers.{header.layer}.engram.table")

    def rows(ids: NDArray[np.int64]) -> Rows:
        found = table[ids]
        return found[:, : model.engram_dim], found[:, model.engram_dim :]

    origin = Provenance(
        hash_parameters={"heads": [one.count for one in heads]},
        source={"kind": "model", "name": model.name},
        source_digest=header.source_digest,
    )
    write_table(path, header, rows, provenance=origin)


def main() -> None:
    """Stage all ranks, or those given, and print the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out")
    parser.add_argument("--model", default=str(TINY_MODEL))
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--rank", type=int, action="append")
    given = parser.parse_args()
    config = EngineConfig(
        rows=given.out, runtime_dir=given.out, model=given.model, world=given.world
    )
    for path in stage(config, tuple(given.rank or range(given.world))):
        print(path)


if __name__ == "__main__":
    main()
