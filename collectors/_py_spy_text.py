"""The text that `py-spy dump` (0.3, 0.4) prints for one process, line by line; for its file and its log parser."""

import re
from dataclasses import dataclass, field

from msgspec import structs

from sentinel.collectors._stack_frames import MAX_FRAMES, MAX_THREADS, frame, rank_hint, title_tags
from sentinel.model.observation import Frame, Origin, Stack, Tags, Thread

PROCESS = re.compile(r"^Process (\d{1,10}): (.*)$")
THREAD = re.compile(r'^Thread (0x[0-9A-Fa-f]{1,16}|\d{1,10})(?:/\S{1,24})? \((active|idle)(\+gil)?\)(?:: "(.*)")?$')
ERROR_PID = re.compile(r"(?:Pid\(|pid[= ]|process )(\d{1,10})\b")
_CAUSE = re.compile(r"^\s{1,8}\d{1,2}: (.+)$")


@dataclass(slots=True)
class Dump:
    """Lines of one process dump, until something else begins."""

    origin: Origin
    at_s: float | None = None
    host: str | None = None
    tags: Tags | None = None
    pid: int | None = None
    title: str | None = None
    threads: list[Thread] = field(default_factory=list)
    error: list[str] = field(default_factory=list)
    open_thread: Thread | None = None
    frames: list[Frame] = field(default_factory=list)
    in_backtrace: bool = False

    def take(self, text: str) -> bool:
        """Use one line; False when it is not part of a dump."""
        if (found := THREAD.match(text)) is not None:
            self._close_thread()
            tid = None if found[1].startswith("0x") else int(found[1])
            self.open_thread = Thread(
                name=found[4], tid=tid, state="active" if found[2] == "active" else "idle",
                owns_gil=True if found[3] else None,
            )  # fmt: skip
            return True
        if text.startswith("    ") and self.open_thread is not None:
            self._frame(text)
            return True
        return self._other(text)

    def _frame(self, text: str) -> None:
        body = text[4:]
        at = body.rfind(" (")
        if at <= 0 or body.startswith(" ") or not body.endswith(")") or len(self.frames) >= MAX_FRAMES:
            return
        file, colon, line = body[at + 2 : -1].rpartition(":")
        if colon and line.isdecimal() and len(line) < 9:
            self.frames.append(frame(body[:at], file, int(line)))
        else:
            self.frames.append(frame(body[:at], body[at + 2 : -1], None))

    def _other(self, text: str) -> bool:
        if not text.strip() or text.startswith(("Python v", "Parent Process ")):
            return True
        if text.startswith(("Error: ", "Error:\t")) or (text.startswith("Reason: ") and self.error):
            self.error.append(text.partition(": ")[2])
            return True
        if not self.error:
            return False
        if text.startswith("Stack backtrace"):
            self.in_backtrace = True
        if (found := _CAUSE.match(text)) is not None:
            if not self.in_backtrace and len(self.error) < 8:
                self.error.append(found[1])
            return True
        return self.in_backtrace or text.startswith(("Caused by", "   "))

    def _close_thread(self) -> None:
        if self.open_thread is not None and len(self.threads) < MAX_THREADS:
            self.threads.append(structs.replace(self.open_thread, frames=tuple(self.frames)))
        self.open_thread, self.frames = None, []

    def stack(self, name: str) -> Stack | None:
        """The finished dump; None when nothing was said about any process."""
        self._close_thread()
        pid, error = self.pid, ": ".join(self.error) or None
        if pid is None and error is not None and (found := ERROR_PID.search(error)):
            pid = int(found[1])
        if not self.threads and error is None:
            if pid is None:
                return None
            error = "no thread was printed"
        tags = title_tags(self.title) or self.tags
        return Stack(
            origin=self.origin, at_s=self.at_s, host=self.host, pid=pid, tags=tags, tool="py-spy", title=self.title,
            rank=rank_hint(name) if tags is None else None, threads=tuple(self.threads),
            native=any(each.native for thread in self.threads for each in thread.frames),
            error=None if self.threads else error,
        )  # fmt: skip
