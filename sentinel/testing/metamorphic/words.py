"""Transforms of what evidence says: other ranks, pids, hosts, days, GPU models, rates and dialects."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from sentinel.scoring.expected import Expected
from sentinel.testing.metamorphic.folder import Variant, is_text

_PID_SHIFT = 31_000
_HOST = re.compile(rb"\bnode(\d+)\b")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_NS_MIN, _NS_MAX = 1_600_000_000, 2_100_000_000

_RANK_WORDS = (
    rb"(?<![A-Za-z])(?:TP|worker|RankID\s|EngineCore_DP)(\d+)\b",
    rb"\b[Rr]ank[ =:_]?\s?(\d+)\b",
    rb"(?m)^\S+:\d+:\d+ \[(\d+)\]",
    rb"\b(?:cuda|nvml)Dev (\d+)\b",
    rb"\bkey (\d+)\b",
    rb"\[rank(\d+)\]",
    rb"(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d+, (\d+),",
    rb"--rank (\d+)\b",
    rb'"rank": (\d+)\b',
)


def ranks_swapped(variant: Variant) -> Variant | None:
    """Ranks 0 and 1 of a two-rank engine on one host change places wherever a rank or device number is written."""
    if not _two_plain_ranks(variant):
        return None

    def swap(match: re.Match[bytes]) -> bytes:
        start, end = match.start(1) - match.start(), match.end(1) - match.start()
        number = int(match[1])
        return match[0][:start] + str(1 - number if number < 2 else number).encode() + match[0][end:]

    def change(_: str, data: bytes) -> bytes:
        if is_text(data):
            for words in _RANK_WORDS:
                data = re.sub(words, swap, data)
        return data

    swapped = variant.rewritten(change)
    ranks = variant.expected.ranks
    mapped = None if ranks is None else tuple(sorted(1 - rank for rank in ranks))
    renamed = swapped.renamed(lambda name: re.sub(r"rank([01])\b", lambda found: f"rank{1 - int(found[1])}", name))
    return None if renamed is None else replace(renamed, expected=_with(variant, ranks=mapped))


def hosts_renamed(variant: Variant) -> Variant | None:
    """Hosts called node1, node2, ... get other names, in contents and paths."""
    if not any(_HOST.search(name.encode() + b"\n" + data) for name, data in variant.files.items()):
        return None

    def rename(text: bytes) -> bytes:
        return _HOST.sub(lambda found: b"gx-r%02d-u7" % int(found[1]), text)

    changed = variant.rewritten(lambda _, data: rename(data) if is_text(data) else data)
    renamed = changed.renamed(lambda name: rename(name.encode()).decode())
    hosts = variant.expected.hosts
    mapped = None if hosts is None else tuple(rename(host.encode()).decode() for host in hosts)
    return None if renamed is None else replace(renamed, expected=_with(variant, hosts=mapped))


def pids_shifted(variant: Variant) -> Variant | None:
    """All pids of ranks that NCCL or py-spy prefixes name are shifted by a constant."""
    pids: set[bytes] = set()
    for data in variant.files.values():
        if is_text(data):
            pids.update(re.findall(rb"(?m)^(?:Process |\S+:)(\d{3,7}):(?: |\d+ \[)", data))
            pids.update(re.findall(rb"\bpid=(\d{3,7})\b", data))
    if not pids:
        return None
    one = re.compile(rb"(?<![\d.:x-])(?:" + b"|".join(sorted(pids, reverse=True)) + rb")(?![\d.]|:\d\d\b)")

    def shift(text: bytes) -> bytes:
        return one.sub(lambda found: str(int(found[0]) + _PID_SHIFT).encode(), text)

    changed = variant.rewritten(lambda name, data: shift(data) if is_text(data) and not _counts(name, data) else data)
    return changed.renamed(lambda name: shift(name.encode()).decode())


def days_later(days: int) -> Callable[[Variant], Variant | None]:
    """All dates move by whole days, so that clocks and file names stay."""
    return lambda variant: _moved(variant, timedelta(days=days))


def onto_new_year(variant: Variant) -> Variant | None:
    """All dates and clocks move so that the middle of the evidence is the turn of the year."""
    if any(re.search(r"\d{6}", name) or "uptime" in name for name in variant.files):
        return None
    times = [found for data in variant.files.values() if is_text(data) for found in _full_dates(data)]
    if not times:
        return None
    middle = max(times) - timedelta(seconds=4)
    return _moved(variant, datetime(middle.year + 1, 1, 1, tzinfo=UTC) - middle)


def milliseconds_dropped(variant: Variant) -> Variant | None:
    """No clock prints fractions of a second."""
    pattern = re.compile(rb"(\b\d\d:\d\d:\d\d)[.,]\d{3}\b(?!\d)")
    if not any(is_text(data) and pattern.search(data) for data in variant.files.values()):
        return None
    return variant.rewritten(lambda _, data: pattern.sub(rb"\1", data) if is_text(data) else data)


def hexadecimal_capitals(variant: Variant) -> Variant | None:
    """Addresses and hashes with capital digits, as another C library prints them."""
    pattern = re.compile(rb"(?<=\b0x)[0-9a-f]*[a-f][0-9a-f]*\b")
    if not any(is_text(data) and pattern.search(data) for data in variant.files.values()):
        return None
    return variant.rewritten(
        lambda _, data: pattern.sub(lambda found: found[0].upper(), data) if is_text(data) else data
    )


def watts_scaled(factor: float) -> Callable[[Variant], Variant | None]:
    """Another GPU model: all power figures and power limits scaled, clocks as well."""

    def scaled(match: re.Match[bytes]) -> bytes:
        return f"{float(match[1]) * factor:.2f}".encode() + match[2]

    def change(_: str, data: bytes) -> bytes:
        data = re.sub(rb"\b(\d+(?:\.\d+)?)( ?W\b)", scaled, data)
        return re.sub(rb"\b(\d{3,4})( MHz\b)", lambda found: b"%d%b" % (int(found[1]) * 0.9, found[2]), data)

    return lambda variant: (
        variant.rewritten(change)
        if any(is_text(data) and re.search(rb"\d ?W\b", data) for data in variant.files.values())
        else None
    )


def throughput_scaled(factor: float) -> Callable[[Variant], Variant | None]:
    """Another model size: all printed rates scaled."""
    words = rb"(throughput(?: \(token/s\))?: |gen throughput \(token/s\): )(\d+(?:\.\d+)?)"

    def change(_: str, data: bytes) -> bytes:
        return re.sub(words, lambda found: found[1] + f"{float(found[2]) * factor:.2f}".encode(), data)

    return lambda variant: (
        variant.rewritten(change) if any(b"throughput" in data for data in variant.files.values()) else None
    )


def sglang_milliseconds(variant: Variant) -> Variant | None:
    """SGLang prefixes with milliseconds, as newer versions print them."""
    head = re.compile(rb"(?m)^(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)((?: [A-Z]+\d+)*\] )")
    return _with_head(variant, head, rb"\1.000\2")


def sglang_old_decode_lines(variant: Variant) -> Variant | None:
    """Decode lines with a full stop after the batch and a trailing comma, as older versions print them."""
    line = re.compile(rb"(?m)(Decode batch)((?: \[\d+\])?)([,.]) (#running-req: [^\n]*?)(,?)$")
    return _with_head(variant, line, rb"\1. \4,")


def nccl_stamped(variant: Variant) -> Variant | None:
    """NCCL prefixes with a time, as NCCL_DEBUG_TIMESTAMP_FORMAT adds one: that at which the evidence begins."""
    times = [at for data in variant.files.values() if is_text(data) for at in _full_dates(data)]
    head = re.compile(rb"(?m)^(\S+:\d+:\d+ \[\d+\] NCCL )")
    return _with_head(variant, head, f"[{min(times):%Y-%m-%d %H:%M:%S}] ".encode() + rb"\1") if times else None


def vllm_plain_prefixes(variant: Variant) -> Variant | None:
    """vLLM lines without the process name in front, as versions before 0.11 print them."""
    head = re.compile(rb"(?m)^\((?:APIServer|EngineCore(?:_DP\d+)?) pid=\d+\) (?=(?:INFO|WARNING|ERROR) )")
    return _with_head(variant, head, b"")


def py_spy_as_json(variant: Variant) -> Variant | None:
    """py-spy text dumps as `py-spy dump --json` prints them; the process's name is lost, as it is there."""

    def change(_: str, data: bytes) -> bytes:
        if not is_text(data) or not re.match(rb"Process \d+: ", data) or data.count(b"\nProcess ") > 0:
            return data
        return _json_dump(data.decode(errors="replace"))

    changed = variant.rewritten(change)
    return None if changed.files == variant.files else changed


def _json_dump(text: str) -> bytes:
    pid = int(text.split(":", 1)[0].removeprefix("Process "))
    threads: list[dict[str, object]] = []
    frames: list[dict[str, object]] = []
    for line in text.splitlines():
        if head := re.match(r'Thread (?:(\d+)|0x[0-9A-Fa-f]+) \(([^)]*)\)(?:: "(.*)")?', line):
            frames = []
            threads.append(
                {
                    "pid": pid, "thread_id": int(head[1] or 0), "thread_name": head[3],
                    "os_thread_id": int(head[1] or 0), "active": "idle" not in head[2],
                    "owns_gil": "gil" in head[2], "frames": frames,
                }
            )  # fmt: skip
        elif frame := re.match(r"    (.+) \(([^()]+?)(?::(\d+))?\)$", line):
            frames.append(
                {
                    "name": frame[1], "filename": frame[2], "module": None, "short_filename": frame[2],
                    "line": int(frame[3] or 0), "locals": None, "is_entry": False,
                }
            )  # fmt: skip
    return json.dumps(threads, indent=2).encode()


def _with_head(variant: Variant, pattern: re.Pattern[bytes], replacement: bytes) -> Variant | None:
    changed = variant.rewritten(lambda _, data: pattern.sub(replacement, data) if is_text(data) else data)
    return None if changed.files == variant.files else changed


def _with(variant: Variant, **fields: object) -> Expected:
    return msgspec.structs.replace(variant.expected, **fields)


def _two_plain_ranks(variant: Variant) -> bool:
    """One host, two ranks, one tensor group, two devices."""
    text = b"\n".join(name.encode() + b"\n" + data for name, data in variant.files.items() if is_text(data))
    ranks = set(re.findall(rb"\bnranks[ =](\d+)", text))
    return ranks <= {b"2", b"1"} and bool(re.search(rb"\bTP1\b|rank1\b", text)) and not re.search(rb"\bTP[2-9]", text)


def _counts(name: str, data: bytes) -> bool:
    return ".csv" in name or data.startswith(b"timestamp,")


def _full_dates(data: bytes) -> list[datetime]:
    found = re.findall(rb"\b(20\d\d)[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)", data)
    return [datetime(*map(int, parts), tzinfo=UTC) for parts in found]  # type: ignore[arg-type,misc]


def _moved(variant: Variant, by: timedelta) -> Variant | None:
    if not any(is_text(data) and _full_dates(data) for data in variant.files.values()):
        return None
    year = max(at.year for data in variant.files.values() if is_text(data) for at in _full_dates(data))
    return variant.rewritten(lambda _, data: _move(data, by, year) if is_text(data) else data)


def _move(data: bytes, by: timedelta, year: int) -> bytes:
    def full(match: re.Match[bytes]) -> bytes:
        at = datetime(*(int(match[group]) for group in (1, 3, 4, 6, 7, 8)), tzinfo=UTC) + by  # type: ignore[arg-type,misc]
        sep = match[2].decode()
        return f"{at:%Y}{sep}{at:%m}{sep}{at:%d}{match[5].decode()}{at:%H:%M:%S}".encode()

    def short(match: re.Match[bytes]) -> bytes:
        at = datetime(year, *(int(match[group]) for group in (2, 3, 4, 5, 6)), tzinfo=UTC) + by  # type: ignore[arg-type,misc]
        return match[1] + f"{at:%m-%d %H:%M:%S}".encode()

    def glog(match: re.Match[bytes]) -> bytes:
        at = datetime(year, *(int(match[group]) for group in (2, 3, 4, 5, 6)), tzinfo=UTC) + by  # type: ignore[arg-type,misc]
        return match[1] + f"{at:%m%d %H:%M:%S}".encode()

    def syslog(match: re.Match[bytes]) -> bytes:
        stated = int(match[7]) if match[7] else year
        month = _MONTHS.index(match[2].decode()) + 1
        at = datetime(stated, month, *(int(match[group]) for group in (3, 4, 5, 6)), tzinfo=UTC) + by  # type: ignore[arg-type,misc]
        day = f"{at:%a} ".encode() if match[1] else b""
        tail = f" {at:%Y}".encode() if match[7] else b""
        return day + f"{_MONTHS[at.month - 1]} {at.day:2d} {at:%H:%M:%S}".encode() + tail

    def epoch(match: re.Match[bytes]) -> bytes:
        seconds = int(match[1])
        return str(seconds + int(by.total_seconds())).encode() if _NS_MIN < seconds < _NS_MAX else match[0]

    data = re.sub(rb"\b(20\d\d)([-/])(\d\d)[-/](\d\d)([ T])(\d\d):(\d\d):(\d\d)", full, data)
    data = re.sub(rb"(\b(?:INFO|WARNING|ERROR|DEBUG) )(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)", short, data)
    data = re.sub(rb"(\[[IWEF])(\d\d)(\d\d) (\d\d):(\d\d):(\d\d)", glog, data)
    months = "|".join(_MONTHS).encode()
    data = re.sub(
        rb"\b((?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?(" + months + rb") {1,2}(\d{1,2}) (\d\d):(\d\d):(\d\d)(?: (20\d\d)\b)?",
        syslog, data,
    )  # fmt: skip
    return re.sub(rb"\b(1[6-9]\d{8}|20\d{8})(?=\d{6,9}\b|\b)", epoch, data)
