"""How a log reaches a folder: container frames, journald, ANSI colours, compression, archives, cut tails."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

import gzip
import io
import json
import tarfile
from collections.abc import Callable
from random import Random
from typing import Literal

import zstandard

from sentinel.testing.generator import clock

Frame = Literal["plain", "docker", "cri", "journal"]
FRAMES: tuple[Frame, ...] = ("plain", "plain", "plain", "docker", "cri", "journal")
Lines = list[tuple[float, str]]
DOCKER_SPLIT = 16384


def framed(rng: Random, lines: Lines, frame: Frame, *, host: str, colour: bool) -> str:
    """Lines in their transport frame; a multi-line record becomes one frame a line, as runtimes do."""
    single = [(at_s, part) for at_s, text in lines for part in text.split("\n")]
    if colour:
        single = [(at_s, _coloured(text)) for at_s, text in single]
    writer: dict[Frame, Callable[[float, str, int], str]] = {
        "plain": lambda _at, text, _n: text + "\n",
        "docker": lambda at, text, _n: _docker(at, text),
        "cri": lambda at, text, _n: f"{clock.rfc3339(at)} stderr F {text}\n",
        "journal": lambda at, text, n: _journal(at, text, n, host),
    }
    write = writer[frame]
    jitter = rng.random() * 0.2
    return "".join(write(at_s + jitter, text, number) for number, (at_s, text) in enumerate(single))


def _coloured(text: str) -> str:
    """vLLM colours its process prefix."""
    if text.startswith("(") and ") " in text:
        head, _, rest = text.partition(") ")
        return f"\x1b[0;36m{head})\x1b[0;0m {rest}"
    return text


def _docker(at_s: float, text: str) -> str:
    """json-file: long text is split, only the last record ends in a newline."""
    parts = [text[start : start + DOCKER_SPLIT] for start in range(0, len(text), DOCKER_SPLIT)] or [""]
    parts[-1] += "\n"
    return "".join(
        json.dumps({"log": part, "stream": "stderr", "time": clock.rfc3339(at_s)}, separators=(",", ":")) + "\n"
        for part in parts
    )


def _journal(at_s: float, text: str, number: int, host: str) -> str:
    """journalctl -o json: a MESSAGE with control bytes is an array of integers."""
    plain = all(character >= " " or character == "\t" for character in text)
    message: object = text if plain else list(text.encode())
    record = {
        "__CURSOR": f"s=5d1c;i={number:x}", "__REALTIME_TIMESTAMP": str(int(at_s * 1e6)), "_HOSTNAME": host, "PRIORITY": "6",
        "MESSAGE": message, "_TRANSPORT": "stdout", "_SYSTEMD_UNIT": "engine.service",
    }  # fmt: skip
    return json.dumps(record, separators=(",", ":")) + "\n"


def cut_tail(rng: Random, text: str) -> str:
    """A file whose last line is cut in the middle."""
    last = text.rfind("\n", 0, len(text) - 1)
    length = len(text) - last - 1
    return text[: last + 1 + rng.randrange(1, max(2, length - 1))] if length > 4 else text


def packed(rng: Random, files: dict[str, bytes], *, keep_plain: float) -> dict[str, bytes]:
    """Some files compressed, or all files of a kind in one archive."""
    out: dict[str, bytes] = {}
    style = rng.choice(("gz", "zst", "mixed", "tar"))
    if style == "tar" and len(files) > 3:
        return _archived(rng, files)
    for name, content in files.items():
        chosen = style if style in ("gz", "zst") else rng.choice(("gz", "zst"))
        if rng.random() < keep_plain:
            out[name] = content
        elif chosen == "gz":
            out[name + ".gz"] = gzip.compress(content, 6, mtime=0)
        else:
            out[name + ".zst"] = zstandard.ZstdCompressor(level=3).compress(content)
    return out


def _archived(rng: Random, files: dict[str, bytes]) -> dict[str, bytes]:
    """The NCCL files, else half of all files, in one tar.gz."""
    chosen = [name for name in files if "nccl" in name.lower()] or sorted(files)[: len(files) // 2]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in chosen:
            entry = tarfile.TarInfo(name)
            entry.size = len(files[name])
            tar.addfile(entry, io.BytesIO(files[name]))
    out = {name: content for name, content in files.items() if name not in chosen}
    out[rng.choice(("logs.tar.gz", "collected.tar.gz", "bundle.tgz"))] = gzip.compress(buffer.getvalue(), 6, mtime=0)
    return out
