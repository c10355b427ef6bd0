"""Transforms of how evidence lies on disk: names, folders, compression, frames, line ends, cuts, merged files."""

import gzip
import io
import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import zstandard

from sentinel.testing.metamorphic.folder import Variant, is_engine_log, is_text

_NCCL = re.compile(rb"(?m)^\S+:\d+:\d+ \[\d+\] NCCL ")
_STAMP_IN_NAME = re.compile(r"[-_.]?(?:\d{8}T\d{6}Z?|\d{6})(?=\D|$)")
_CUT_BYTES = 11
_FRAME_STEP_S = 0.001
_LONG_TEXT = 4000


def meaningless_names(variant: Variant) -> Variant | None:
    """Files called f0, f1, ... in their old folders."""
    numbers = {name: index for index, name in enumerate(sorted(variant.files))}
    return variant.renamed(lambda name: _sibling(name, f"f{numbers[name]}"))


def no_extensions(variant: Variant) -> Variant | None:
    """File names end where their first dot was; folders stay."""
    return variant.renamed(lambda name: _sibling(name, name.rsplit("/", 1)[-1].partition(".")[0] or "x"))


def no_stamps_in_names(variant: Variant) -> Variant | None:
    """File names lose their times; None when the times tell samples apart."""
    changed = variant.renamed(lambda name: _sibling(name, _STAMP_IN_NAME.sub("", name.rsplit("/", 1)[-1]) or "x"))
    return None if changed is None or changed.files.keys() == variant.files.keys() else changed


def nested(variant: Variant) -> Variant | None:
    """Everything two folders deeper."""
    return variant.renamed(lambda name: f"upload/attachments/{name}")


def flattened(variant: Variant) -> Variant | None:
    """No folders; what they were called begins the file names. None when there are none."""
    changed = variant.renamed(lambda name: name.replace("/", "-"))
    return None if changed is None or changed.files.keys() == variant.files.keys() else changed


def tarred(variant: Variant) -> Variant:
    """One tar.gz of everything."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1) as tar:
        for name, data in variant.files.items():
            entry = tarfile.TarInfo(f"bundle/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return replace(variant, files={"bundle.tar.gz": buffer.getvalue()})


def compressed(variant: Variant) -> Variant:
    """Files compressed, gzip and zstd in turn."""
    files: dict[str, bytes] = {}
    for index, (name, data) in enumerate(variant.files.items()):
        if index % 2:
            files[f"{name}.zst"] = zstandard.ZstdCompressor(level=1).compress(data)
        else:
            files[f"{name}.gz"] = gzip.compress(data, 1)
    return replace(variant, files=files)


def crlf(variant: Variant) -> Variant:
    """Lines end as a copy through a Windows machine leaves them."""
    return variant.rewritten(
        lambda _, data: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n") if is_text(data) else data
    )


def coloured(variant: Variant) -> Variant | None:
    """Levels and prefixes of engine logs in colour."""
    return _engine_logs(variant, lambda data: re.sub(rb"(?m)\b(INFO|WARNING|ERROR)\b", b"\x1b[32m\\1\x1b[0m", data))


def colourless(variant: Variant) -> Variant | None:
    """No colour codes anywhere."""
    if not any(b"\x1b[" in data for data in variant.files.values()):
        return None
    return variant.rewritten(lambda _, data: re.sub(rb"\x1b\[[0-9;]*m", b"", data) if is_text(data) else data)


def docker_framed(variant: Variant) -> Variant | None:
    """Engine logs as Docker's json-file driver writes them."""

    def frame(text: str, stamp: str) -> str:
        return json.dumps({"log": f"{text}\n", "stream": "stderr", "time": stamp}, separators=(",", ":"))

    return _framed(variant, frame)


def spaced_docker_framed(variant: Variant) -> Variant | None:
    """Docker's frame as a JSON library with spaces re-wrote it."""
    return _framed(variant, lambda text, stamp: json.dumps({"log": f"{text}\n", "stream": "stdout", "time": stamp}))


def cri_framed(variant: Variant) -> Variant | None:
    """Engine logs as containerd writes them."""
    return _framed(variant, lambda text, stamp: f"{stamp} stderr F {text}")


def journal_framed(variant: Variant) -> Variant | None:
    """Engine logs as `journalctl -o json` prints them."""

    def frame(text: str, stamp: str) -> str:
        at = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
        micros = str(int(at.timestamp() * 1e6))
        return json.dumps({"__REALTIME_TIMESTAMP": micros, "MESSAGE": text, "_COMM": "python3"})

    return _framed(variant, frame)


def last_line_cut(variant: Variant) -> Variant:
    """Every text file was copied while it was written: its last line is cut in the middle."""
    return variant.rewritten(lambda _, data: _cut_end(data) if is_text(data) and data.count(b"\n") > 3 else data)


def heads_cut(variant: Variant) -> Variant | None:
    """Engine logs begin in the middle: a tenth of their lines is gone, among them the start-up arguments."""
    return _engine_logs(variant, lambda data: b"".join(data.splitlines(keepends=True)[data.count(b"\n") // 10 :]))


def nccl_logs_merged(variant: Variant) -> Variant | None:
    """The NCCL logs of all ranks in one file, in blocks of lines as they were flushed."""
    names = [name for name, data in variant.files.items() if is_text(data) and _NCCL.match(data)]
    if len(names) < 2:
        return None
    blocks = [variant.files[name].splitlines(keepends=True) for name in names]
    merged = bytearray()
    for start in range(0, max(map(len, blocks)), 50):
        for lines in blocks:
            merged += b"".join(lines[start : start + 50])
    files = {name: data for name, data in variant.files.items() if name not in names}
    return replace(variant, files={**files, _sibling(names[0], "nccl-all.log"): bytes(merged)})


def engine_log_split(variant: Variant) -> Variant | None:
    """One engine log of several ranks becomes a file for each rank."""
    files: dict[str, bytes] = {}
    split = False
    for name, data in variant.files.items():
        parts = _by_tag(data) if is_engine_log(data) else {}
        if len(parts) > 1:
            split = True
            files.update({f"{name}.{index}": part for index, part in enumerate(parts.values())})
        else:
            files[name] = data
    return replace(variant, files=files) if split else None


def _by_tag(data: bytes) -> dict[bytes, bytes]:
    parts: dict[bytes, list[bytes]] = defaultdict(list)
    tag = b""
    for line in data.splitlines(keepends=True):
        head = re.match(rb"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d((?: [A-Z]+\d+)*)\]", line)
        tag = head[1] if head else tag
        parts[tag].append(line)
    return {tag: b"".join(lines) for tag, lines in parts.items()}


def _sibling(name: str, base: str) -> str:
    folder, slash, _ = name.rpartition("/")
    return f"{folder}{slash}{base}"


def _engine_logs(variant: Variant, change: Callable[[bytes], bytes]) -> Variant | None:
    if not any(is_engine_log(data) for data in variant.files.values()):
        return None
    return variant.rewritten(lambda _, data: change(data) if is_engine_log(data) else data)


def _framed(variant: Variant, frame: Callable[[str, str], str]) -> Variant | None:
    def change(data: bytes) -> bytes:
        lines = data.decode(errors="replace").rstrip("\n").split("\n")
        return "".join(f"{frame(text, stamp)}\n" for text, stamp in zip(lines, _stamps(lines), strict=True)).encode()

    return _engine_logs(variant, change)


def _stamps(lines: list[str]) -> list[str]:
    """A frame time for each line: what the line prints, else a little after the line before; ISO 8601 with `Z`."""
    at = None
    stamps: list[float | None] = []
    for text in lines:
        at = _printed(text[:200]) or (None if at is None else at + _FRAME_STEP_S)
        stamps.append(at)
    first = next((found for found in stamps if found is not None), 0.0)
    return [
        datetime.fromtimestamp(first if found is None else found, tz=UTC).isoformat(timespec="microseconds")[:-6] + "Z"
        for found in stamps
    ]


def _printed(text: str) -> float | None:
    if found := re.search(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)", text):
        return datetime(*map(int, found.groups()), tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]
    if found := re.search(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)", text):
        return datetime(2026, *map(int, found.groups()), tzinfo=UTC).timestamp()  # type: ignore[arg-type,misc]
    return None


def _cut_end(data: bytes) -> bytes:
    last = data.rstrip(b"\n").rpartition(b"\n")[2]
    end = len(data.rstrip(b"\n"))
    return data[: end - min(len(last) // 2, _LONG_TEXT) - min(_CUT_BYTES, len(last) // 3)] if len(last) > 1 else data
