"""Packed corpora: `*.tar.zst` archives of labelled cases; packing is reproducible, unpacking is safe."""

import io
import tarfile
from pathlib import Path

import zstandard

SUFFIX = ".tar.zst"
LEVEL = 19
MAX_UNPACKED_BYTES = 512 << 20


class CorpusError(ValueError):
    """An archive that is not a corpus, or that holds more than one may."""


def is_packed(path: Path) -> bool:
    """Whether a path names a packed corpus."""
    return path.name.endswith(SUFFIX) and path.is_file()


def pack(folder: Path, archive: Path) -> None:
    """Pack the files below `folder`; the same content gives the same bytes (order, owner and times are fixed)."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(found for found in folder.rglob("*") if found.is_file()):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            content = path.read_bytes()
            entry.size, entry.mode = len(content), 0o644
            tar.addfile(entry, io.BytesIO(content))
    archive.write_bytes(zstandard.ZstdCompressor(level=LEVEL).compress(buffer.getvalue()))


def case_names(archive: Path) -> tuple[str, ...]:
    """Names of the cases in an archive, without unpacking it to disk. Raises CorpusError when it is none."""
    try:
        with (
            archive.open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            return tuple(sorted({entry.name.partition("/")[0] for entry in tar}))
    except (tarfile.TarError, zstandard.ZstdError) as error:
        raise CorpusError(f"{archive}: {error}") from error


def unpack(archive: Path, target: Path) -> Path:
    """Unpack into `target` (created) and return it. Raises CorpusError on links, devices, paths that leave, or size."""
    target.mkdir(parents=True, exist_ok=True)
    try:
        with (
            archive.open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            _extract(tar, target)
    except (tarfile.TarError, zstandard.ZstdError) as error:
        raise CorpusError(f"{archive}: {error}") from error
    return target


def _extract(tar: tarfile.TarFile, target: Path) -> None:
    left = MAX_UNPACKED_BYTES
    for entry in tar:
        left -= entry.size
        if left < 0:
            raise CorpusError(f"more than {MAX_UNPACKED_BYTES >> 20} MiB unpacked")
        if not entry.isfile():
            raise CorpusError(f"{entry.name}: only regular files belong into a corpus")
        tar.extract(entry, target, set_attrs=False, filter="data")
