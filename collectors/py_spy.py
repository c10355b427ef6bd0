"""`py-spy dump` (0.3 and 0.4): text, `--json`, its error output, and the dumps that SGLang prints into its own log.

Text of one process: `Process PID: title`, `Python vX (path)`, then per thread `Thread TID (active+gil): "name"` and
frames `    function (file:line)`, innermost first. `active` means running or in a native call that py-spy takes for
running; `+gil` marks the holder of the interpreter lock, except when that holder sleeps (then only `--json` shows it,
as `owns_gil` without `active`). Errors are kept as text: that a process cannot be suspended is evidence too.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator

from sentinel.collector import Blob, Context, DocumentParser, Line, LogParser, Sample
from sentinel.collectors._py_spy_embedded import Embedded
from sentinel.collectors._py_spy_text import ERROR_PID, PROCESS, THREAD, Dump
from sentinel.collectors._stack_frames import MAX_FRAMES, MAX_LINE, MAX_THREADS, frame, rank_hint, stamp, title_tags
from sentinel.model.observation import Frame, Observation, Origin, Stack, Thread

_BARE_PROCESS = re.compile(r"^Process (\d{1,10})$")
_ERRORS = (
    "Failed to get stack trace", "Failed to suspend process", "Failed to find python version", "Failed to open process",
    "Failed to get process executable", "Failed to find PyRuntime", "Permission Denied: Try running again",
    "Permission denied (os error", "Failed to get native stack trace", "Failed to get python interpreter",
    "unexpected waitpid result", "No such process", "Failed to copy PyThreadState", "Failed to create process",
)  # fmt: skip


def parse_text(lines: Iterable[Line], context: Context) -> Iterator[Stack]:
    """Stacks of a file that holds the output of one or more `py-spy dump` runs."""
    dump: Dump | None = None
    for line in lines:
        text = line.text[:MAX_LINE].rstrip()
        started = PROCESS.match(text) or _BARE_PROCESS.match(text)
        if started or dump is None or (dump.threads and text.startswith("Error: ")):
            if dump is not None and (done := dump.stack(context.name)) is not None:
                yield done
            dump = Dump(Origin(context.name, line.number), at_s=line.at_s, host=context.host or line.host)
        if started:
            dump.pid = int(started[1])
            dump.title = started[2].strip() if started.re is PROCESS else None
        elif not dump.take(text) and dump.pid is None and (found := ERROR_PID.search(text)) and "py-spy" in text:
            dump.pid = int(found[1])
    if dump is not None and (done := dump.stack(context.name)) is not None:
        yield done


def parse_json(text: str, context: Context) -> Iterator[Stack]:
    """Stacks of `py-spy dump --json`; of a file cut in the middle, the threads that are complete."""
    by_pid: dict[int | None, list[Thread]] = {}
    titles: dict[int | None, str] = {}
    for entry in _objects(text):
        pid = entry.get("pid")
        key = pid if isinstance(pid, int) else None
        threads = by_pid.setdefault(key, [])
        if len(threads) < MAX_THREADS:
            threads.append(_json_thread(entry))
        info = entry.get("process_info")
        if isinstance(info, dict) and isinstance(info.get("command_line"), str):
            titles[key] = info["command_line"]
    for key, threads in by_pid.items():
        tags = title_tags(titles.get(key))
        yield Stack(
            origin=Origin(context.name), host=context.host, pid=key, tags=tags, title=titles.get(key), tool="py-spy",
            rank=rank_hint(context.name) if tags is None else None, threads=tuple(threads),
            native=any(each.native for thread in threads for each in thread.frames),
        )  # fmt: skip


def _objects(text: str) -> Iterator[dict[str, object]]:
    decoder, at = json.JSONDecoder(), text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict) and "frames" in value:
            yield value
        at = text.find("{", end)


def _json_thread(entry: dict[str, object]) -> Thread:
    frames = entry.get("frames")
    name, tid, gil = entry.get("thread_name"), entry.get("os_thread_id"), entry.get("owns_gil")
    return Thread(
        name=name if isinstance(name, str) else None,
        tid=tid if isinstance(tid, int) else None,
        state="active" if entry.get("active") is True else "idle",
        owns_gil=gil if isinstance(gil, bool) else None,
        frames=tuple(_json_frames(frames)) if isinstance(frames, list) else (),
    )


def _json_frames(frames: list[object]) -> Iterator[Frame]:
    for each in frames[:MAX_FRAMES]:
        if isinstance(each, dict):
            name, line = each.get("name"), each.get("line")
            files = (each.get("short_filename"), each.get("filename"), each.get("module"))
            file = next((text for text in files if isinstance(text, str) and text), None)
            yield frame(name if isinstance(name, str) else "?", file, line if isinstance(line, int) else None)


def _parse(blob: Blob, context: Context) -> Iterator[Observation]:
    text = blob.text()
    if text.lstrip().startswith(("[", "{")):
        yield from parse_json(text, context)
    else:
        yield from parse_text(blob.lines(), context)


def _recognise(sample: Sample) -> bool:
    head = sample.head.lstrip()
    if head.startswith("["):
        return '"frames"' in sample.head and '"thread_name"' in sample.head
    first = [line for line in head[:8192].splitlines() if line.strip()][:12]
    if any(line.startswith("Error: ") and any(known in head for known in _ERRORS) for line in first[:4]):
        return True
    titles = any(PROCESS.match(line[:MAX_LINE]) for line in first)
    starts = titles and any(line.startswith("Python v") for line in first)
    return (starts or any(THREAD.match(line[:MAX_LINE]) for line in first)) and "Pyspy dump for PID" not in head[:8192]


def _start(context: Context) -> Callable[[Iterable[Line]], Iterator[Observation]]:
    return Embedded(context).feed


def _recognise_log(sample: Sample) -> bool:
    """Any log of an engine: a dump may stand anywhere in it, far behind the sample."""
    text = sample.head + sample.tail
    return "Pyspy" in text or "sglang" in text.lower() or stamp(text[:64], 1970) is not None


PARSERS = (
    DocumentParser(name="py-spy", recognise=_recognise, parse=_parse),
    LogParser(name="py-spy-embedded", recognise=_recognise_log, start=_start),
)
