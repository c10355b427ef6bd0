"""Where a table lies inside a safetensors checkpoint, so that it can be served unpacked."""

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path

from .errors import BadTable
from .geometry import CodeType, RowFormat

_HEADER_BYTES_MAX = 256 << 20
_SCALE_BYTES_PER_ROW = 8


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a safetensors file; `offset` counts from the start of the file."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


def read_tensors(path: Path) -> tuple[dict[str, Tensor], bytes]:
    """Tensors of a file by name, and the SHA-256 of its header; the data is not read."""
    with path.open("rb") as file:
        prefix = file.read(8)
        length = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else 0
        if not 2 <= length <= _HEADER_BYTES_MAX:
            raise BadTable(f"{path} is not a safetensors file")
        header = file.read(length)
    try:
        entries = json.loads(header)
    except ValueError as error:
        raise BadTable(f"{path}: the safetensors header is damaged ({error})") from error
    size = path.stat().st_size
    tensors = {}
    for name, entry in entries.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if not 0 <= begin <= end <= size - 8 - length:
            raise BadTable(f"{path}: tensor {name} lies outside the file; fetch the shard again")
        tensors[name] = Tensor(entry["dtype"], tuple(entry["shape"]), 8 + length + begin,
                               end - begin)
    return tensors, hashlib.sha256(prefix + header).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class InplaceTable:
    """Codes and scales of one layer, left where the checkpoint has them."""

    layer: int
    path: Path
    scales_path: Path
    codes: Tensor
    scales: Tensor

    @property
    def rows(self) -> int:
        return self.codes.shape[0]

    @property
    def row_format(self) -> RowFormat:
        width = self.codes.bytes // self.rows
        kind = CodeType.E2M1 if width == 128 else CodeType.E4M3
        return RowFormat(kind, code_bytes=width, scale_bytes=self.scales.bytes // self.rows)

    def config_value(self) -> str:
        """The value of the core's `inplace` setting."""
        fmt = self.row_format
        parts = (
            self.path, self.scales_path, self.layer, self.codes.offset, self.scales.offset,
            self.rows, fmt.code_bytes, fmt.scale_bytes,
        )  # fmt: skip
        return ";".join(str(part) for part in parts)


def find_table(
    path: Path, codes: str, scales: str, layer: int, scales_path: Path | None = None
) -> InplaceTable:
    """The table whose tensors have these names; the scales may be in another shard."""
    scales_path = scales_path or path
    found = []
    for shard, name in ((path, codes), (scales_path, scales)):
        tensors, _ = read_tensors(shard)
        if name not in tensors:
            raise BadTable(f"{shard} has no tensor {name}; it has {', '.join(sorted(tensors)[:5])}")
        found.append(tensors[name])
    table = InplaceTable(
        layer=layer, path=path, scales_path=scales_path, codes=found[0], scales=found[1]
    )
    if table.scales.shape[0] != table.rows or table.row_format.scale_bytes != _SCALE_BYTES_PER_ROW:
        raise BadTable(f"{codes} has {table.rows} rows, {scales} does not match it row by row")
    return table
