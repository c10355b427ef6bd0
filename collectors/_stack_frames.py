"""What the stack collectors share: frame texts, rank tags of a title, and hints from a file's name.

Frames keep what the tool printed (function, file or library, line); meaning is computed in `core/places.py`.
"""

import calendar
import re

from sentinel.core.identity import tags_of
from sentinel.model.observation import Frame, Tags

MAX_FUNCTION = 240
MAX_FRAMES = 400
MAX_THREADS = 4096
MAX_LINE = 4096

_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)")
_SHORT_STAMP = re.compile(r"\b(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)\b")
_RANK_NAME = re.compile(r"(?:^|[^a-z])(?:rank|tp|worker|w|scheduler)[-_. ]?(\d{1,3})(?![0-9])")
_RANK_FOLDER = re.compile(r"(?:^|[^a-z])rank[-_. ]?(\d{1,3})$")
_WRITER = re.compile(r"^\((?:[A-Za-z_][\w.-]{0,80} )?pid=\d{1,10}(?:, ip=[0-9a-fA-F.:]{2,45})?\) ?")
_NATIVE_SUFFIXES = (".so", ".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hpp", ".cuh", ".rs", ".pyx", ".pxd", ".S", ".go")


def is_native(file: str | None) -> bool:
    """Whether a frame's file is a library, a binary or native source, as py-spy prints them in one list with Python.

    >>> [is_native(name) for name in ("torch/cuda/streams.py", "<string>", "libcuda.so.580.95.05", "python3.12", None)]
    [False, False, True, True, True]
    """
    if file is None:
        return True
    if file.startswith("<") or file.endswith((".py", ".pyc")):
        return False
    base = file.rpartition("/")[2]
    library = ".so." in base or base.startswith(("python", "lib", "ld-")) or "." not in base
    return library or base.endswith(_NATIVE_SUFFIXES)


def frame(function: str, file: str | None, line: int | None, native: bool | None = None) -> Frame:
    """A frame with bounded texts; `native` is derived from the file when the tool does not say."""
    kind = is_native(file) if native is None else native
    return Frame(function[:MAX_FUNCTION], file[:MAX_FUNCTION] if file else None, line or None, kind)


def title_tags(title: str | None) -> Tags | None:
    """Rank tags in an engine's process title; None for a plain command line, whose arguments may look like tags."""
    if title is None or ("::" not in title and not title.startswith("[")):
        return None
    return tags_of(title[:MAX_LINE])


def rank_hint(name: str) -> int | None:
    """Rank that a person put into a file's name; used only where the content names neither rank nor process.

    >>> [rank_hint(n) for n in ("a/pyspy_rank1.txt", "rank3/bt.txt", "eustack_TP12.txt", "worker_8801.txt", "bt.txt")]
    [1, 3, 12, None, None]
    """
    *folders, base = name.lower().split("/")
    if found := _RANK_NAME.search(base):
        return int(found[1])
    for folder in reversed(folders):
        if found := _RANK_FOLDER.search(folder):
            return int(found[1])
    return None


def stamp(text: str, year: int) -> float | None:
    """Time that a log line prints in its first 64 characters, as seconds on the local wall clock; None without one."""
    head = text[:64]
    if found := _STAMP.search(head):
        parts = [int(part) for part in found.groups()]
    elif found := _SHORT_STAMP.search(head):
        parts = [year, *(int(part) for part in found.groups())]
    else:
        return None
    if not (1 <= parts[1] <= 12 and 1 <= parts[2] <= 31 and parts[3] < 24 and parts[4] < 60 and parts[5] < 62):
        return None
    return float(calendar.timegm((*parts, 0, 0, 0)))


def without_writer(text: str) -> str:
    """A line without the `(Worker_TP1 pid=88) ` prefix that vLLM and Ray put before every line of a child."""
    return _WRITER.sub("", text, count=1) if text.startswith("(") else text
