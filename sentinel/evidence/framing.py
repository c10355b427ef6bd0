r"""From raw bytes to lines: takes off what transports put around text.

Handled, recognised by content: Docker json-file (records above 16 KiB are split, only the last part ends with a
newline), Kubernetes CRI (`P`/`F` tags), `kubectl logs --timestamps`, `journalctl -o json` and `-o export`,
`srun --label`. Everywhere: invalid UTF-8 is replaced, NUL bytes (the gap that a truncating rotation leaves) vanish,
terminal escapes are taken out, `\r` separates segments of one line, and a line ends after 1 MiB with a mark.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from sentinel.collector import Line
from sentinel.evidence import frames

FORMATS = {"cri": frames.CRI, "docker.json": frames.DOCKER}

LINE_BYTES = 1 << 20
CUT_MARK = " [line cut here after 1 MiB]"
SEGMENTS_PER_LINE = 400
_SAMPLE_LINES = 20
_DETECT_BYTES = 4096

Frame = Literal["plain", "docker", "cri", "stamped", "journal_json", "journal_export", "srun"]

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,512}(?:\x07|\x1b\\)|[PX^_][^\x1b]{0,512}\x1b\\|[ -/]*[0-~])"
)
_PERCENT = re.compile(r"(\d{1,3})(?:\.\d+)?\s?%")
_SRUN = re.compile(r"^ *\d{1,6}: ")


def strip_escapes(text: str) -> str:
    """Text without terminal control sequences (CSI, OSC, DCS and two-character escapes)."""
    return _ESCAPES.sub("", text).replace("\x1b", "") if "\x1b" in text else text


def detect(head: bytes) -> Frame:
    """The frame of a document from its first bytes; "plain" unless most of the first lines are records of one kind."""
    lines = [line for line in head.replace(b"\0", b"").split(b"\n")[: _SAMPLE_LINES + 1] if line.strip()]
    if len(lines) > 1 and not head.endswith(b"\n"):
        lines.pop()
    lines = lines[:_SAMPLE_LINES]
    if not lines:
        return "plain"
    if frames.is_export(head):
        return "journal_export"
    texts = [line[:4096].decode("utf-8", "replace") for line in lines]
    for frame, pattern in _SHAPES:
        if sum(1 for text in texts if pattern.search(text)) * 10 >= len(texts) * 8:
            return frame
    return "plain"


_SHAPES: tuple[tuple[Frame, re.Pattern[str]], ...] = (
    ("docker", re.compile(r'^\{ ?"log" ?: ?"')),
    ("journal_json", re.compile(r'^\{(?=.*"(?:__CURSOR|__REALTIME_TIMESTAMP|_BOOT_ID|_TRANSPORT|_HOSTNAME)":)')),
    ("cri", re.compile(frames.CRI)),
    ("stamped", re.compile(frames.STAMPED)),
    ("srun", re.compile(_SRUN.pattern + r".*\S")),
)


class Unframer:
    """Turns chunks into lines; usable on a whole file and on a file that is being followed.

    Without a given `frame` the first 4 KiB are held until the frame can be told.
    `feed` gives the complete lines of what came so far, `flush` the unfinished rest. `shift_s` is added to the times
    that frames carry (UTC), to bring them onto the host's wall scale.
    """

    def __init__(self, frame: Frame | None = None, shift_s: float = 0.0) -> None:
        self.frame = frame
        self._shift_s = shift_s
        self._rest = b""
        self._number = 1
        self._cutting = False
        self._join = frames.Joiner()
        self._export = frames.ExportReader()

    def feed(self, chunk: bytes) -> list[Line]:
        """Lines completed by this chunk."""
        data = self._rest + chunk if self._rest else chunk
        if self.frame is None:
            if len(data) < _DETECT_BYTES:
                self._rest = data
                return []
            self.frame = detect(data[: 64 << 10])
        if self.frame == "journal_export":
            self._rest, records = self._export.feed(data)
            return self._from_records(records)
        if b"\0" in data:
            data = data.translate(None, b"\0")
        end = data.rfind(b"\n") + 1
        body, self._rest = data[:end], data[end:]
        lines = self._lines(body) if body else []
        if len(self._rest) > LINE_BYTES:
            lines.extend(self._overlong())
        return lines

    def flush(self) -> list[Line]:
        """What a missing last newline held back, and partial records whose end never came."""
        if self.frame is None:
            rest, self._rest, self.frame = self._rest, b"", detect(self._rest)
            return [*self.feed(rest), *self.flush()]
        body, self._rest = self._rest, b""
        if self.frame == "journal_export":
            lines = self._from_records(self._export.finish(body))
        else:
            lines = self._lines(body + b"\n") if body else []
        for record in self._join.flush():
            lines.extend(self._shifted(part) for part in _segments(record))
        return lines

    def _lines(self, body: bytes) -> list[Line]:
        if self._cutting:
            cut = body.find(b"\n") + 1
            body, self._cutting = body[cut:], False
            self._number += 1
        text = body.decode("utf-8", "replace")
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        texts = text.split("\n")
        texts.pop()
        first = self._number
        self._number += len(texts)
        if self.frame == "plain":
            if len(body) > LINE_BYTES:
                texts = [_cut(one) for one in texts]
            if "\x1b" not in text and "\r" not in text:
                return [Line(number, one) for number, one in enumerate(texts, first)]
            return [line for number, one in enumerate(texts, first) for line in _segments(Line(number, one))]
        read = frames.READERS.get(self.frame or "")
        if read is None:  # srun --label
            return [
                line for number, one in enumerate(texts, first) for line in _segments(Line(number, _SRUN.sub("", one)))
            ]
        return self._from_records(record for number, one in enumerate(texts, first) if (record := read(number, one)))

    def _from_records(self, records: Iterable[frames.Record]) -> list[Line]:
        lines = [line for record in records for whole in self._join.add(record) for line in _segments(whole)]
        return lines if not self._shift_s else [self._shifted(line) for line in lines]

    def _shifted(self, line: Line) -> Line:
        at_s = None if line.at_s is None else line.at_s + self._shift_s
        return Line(line.number, line.text, at_s, line.pid, line.host)

    def _overlong(self) -> list[Line]:
        """A line that outgrew the limit: progress bars keep their segments, anything else is cut with a mark."""
        rest, self._rest = self._rest, b""
        last = rest.rfind(b"\r")
        if self.frame == "plain" and last > 0:
            self._rest = rest[last:]
            text = rest[:last].decode("utf-8", "replace")
            return list(_segments(Line(self._number, text)))
        if self._cutting:
            return []
        self._cutting = True
        text = rest[:LINE_BYTES].decode("utf-8", "replace")
        return list(_segments(Line(self._number, text + CUT_MARK)))


def _cut(text: str) -> str:
    return text if len(text) <= LINE_BYTES else text[:LINE_BYTES] + CUT_MARK


def _segments(line: Line) -> Iterator[Line]:
    """The text between carriage returns, escapes gone; long runs of progress segments are thinned."""
    text = strip_escapes(line.text)
    if "\r" in text:
        for part in thin([part for part in text.split("\r") if part] or [""]):
            yield Line(line.number, part, line.at_s, line.pid, line.host)
    elif text is line.text:
        yield line
    else:
        yield Line(line.number, text, line.at_s, line.pid, line.host)


def thin(parts: list[str]) -> list[str]:
    """First and last segment, and those where the printed percentage changes or is absent; at most 400 of them."""
    kept: list[str] = []
    shown: str | None = None
    for index, part in enumerate(parts):
        found = _PERCENT.search(part[:4096])
        percent = found.group(1) if found else None
        if percent is None or percent != shown or index == len(parts) - 1:
            kept.append(part)
        shown = percent
    if len(kept) > SEGMENTS_PER_LINE:
        half = SEGMENTS_PER_LINE // 2
        kept = [*kept[:half], *kept[-half:]]
    return kept


def unframe(chunks: Iterable[bytes], frame: Frame | None = None, shift_s: float = 0.0) -> Iterator[list[Line]]:
    """Batches of lines of a whole document, one batch for each chunk that completed any."""
    unframer = Unframer(frame, shift_s)
    for chunk in chunks:
        if batch := unframer.feed(chunk):
            yield batch
    if batch := unframer.flush():
        yield batch
