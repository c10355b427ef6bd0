"""Where a process stands: one place word for the thread that decides, from the frames of a stack dump.

A thread is read from its innermost frame outwards. The first frame that names a decisive function wins; a generic wait
(lock, queue, socket, sleep, file) is kept until a frame further out says what is waited for. Tables: `place_tables.py`
and `wait_tables.py`. Threads that only wait for work never decide.

Words: idle_loop gpu_wait collective control_broadcast nccl_host comm_init lock file_io socket native_call compile gc
grammar kv_transfer load step sleep pause frontend unknown.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sentinel.core.place_tables import DECISIVE, DECISIVE_FILES, FileRule, Rule
from sentinel.core.wait_tables import (
    COLLECTIVE_NATIVE,
    CONTROL,
    GPU_LAUNCH,
    GPU_SYNC,
    IDLE,
    INIT,
    LIBRARY_FILES,
    LOOP_BODY,
    LOOPS,
    RESULT_WAITS,
    STEP,
    WEAK_NATIVE,
    WEAK_PYTHON,
)
from sentinel.model.observation import Frame, Thread

WAITING = ("gpu_wait", "collective", "control_broadcast")
"""Places in which a rank waits for other ranks or for its own GPU."""

_DRIVER_CALL = re.compile(r"^(?:cu|cuda)[A-Z]")
_VERSION = re.compile(r"(?:_v\d+(?:_ptsz)?|_ptsz|_ptds)$|@.*$")
_BY_FUNCTION: dict[str, list[Rule]] = {}
for _rule in DECISIVE:
    for _name in _rule.functions:
        _BY_FUNCTION.setdefault(_name, []).append(_rule)
_WEAK_BY_FUNCTION: dict[str, list[Rule]] = {}
for _rule in WEAK_PYTHON:
    for _name in _rule.functions:
        _WEAK_BY_FUNCTION.setdefault(_name, []).append(_rule)


@dataclass(frozen=True, slots=True)
class ThreadPlace:
    """Place of one thread. `site` is its deepest engine frame ("" unknown), `frame` the decisive one; `wait` is the
    generic wait at the top of the stack (mutex, gil, event, queue, sleep, file, poll, message, yield, ioctl or "").
    """

    place: str
    site: str = ""
    frame: Frame | None = None
    wait: str = ""
    launching: bool = False


@lru_cache(maxsize=16384)
def plain(function: str) -> str:
    """A function's own name: without class, namespace, template arguments, parameters and symbol version.

    >>> [plain(n) for n in ("Scheduler.run_batch", "_wrap.<locals>.forward", "std::mutex::lock()", "<module>")]
    ['run_batch', 'forward', 'lock', '<module>']
    """
    if function.startswith("<"):
        return function
    text = function.replace("(anonymous namespace)::", "").replace(".<locals>", "")
    for mark in ("(", "<"):
        at = text.find(mark, 1)
        text = text if at < 0 else text[:at]
    return text.rpartition("::")[2].rpartition(".")[2].strip().rpartition(" ")[2]


@lru_cache(maxsize=16384)
def native_name(function: str) -> str:
    """As `plain`, also without the leading underscores and the suffixes that one C function has in several builds."""
    return _VERSION.sub("", plain(function)).lstrip("_").removeprefix("GI_").removeprefix("libc_")


@lru_cache(maxsize=16384)
def in_files(path: str, fragments: tuple[str, ...]) -> bool:
    """Whether a path contains one of the fragments, each beginning at a path component."""
    return any(path.startswith(each) or f"/{each}" in path for each in fragments)


def in_driver(frame: Frame) -> bool:
    """Whether a frame lies in the CUDA driver library."""
    return frame.native and "libcuda.so" in (frame.file or "")


def is_nameless(frame: Frame) -> bool:
    """Whether the tool printed only an address."""
    return frame.function.startswith("0x") or frame.function in ("??", "???")


def place_of(thread: Thread) -> ThreadPlace:
    """Place of one thread."""
    return _Walk(thread).result()


@lru_cache(maxsize=16384)
def _decisive(name: str, file: str) -> str | None:
    for rule in _BY_FUNCTION.get(name, ()):
        if not rule.files or in_files(file, rule.files):
            return rule.place
    return next((rule.place for rule in DECISIVE_FILES if _file_says(rule, name, file)), None)


def _file_says(rule: FileRule, name: str, file: str) -> bool:
    return in_files(file, (rule.file,)) and name not in rule.but


@lru_cache(maxsize=16384)
def _weak(name: str, file: str) -> str | None:
    return next((rule.place for rule in _WEAK_BY_FUNCTION.get(name, ()) if in_files(file, rule.files)), None)


class _Walk:
    """One pass over a thread's frames, innermost first."""

    def __init__(self, thread: Thread) -> None:
        self.thread = thread
        self.frames: Sequence[Frame] = thread.frames
        self.wait = ""
        self.waiting_at: Frame | None = None
        self.nccl: str | None = None
        self.driver = False
        self.launching = False
        self.within = False

    def result(self) -> ThreadPlace:
        for at, frame in enumerate(self.frames):
            place = self._native(frame) if frame.native else self._python(frame)
            if place is not None:
                return self._decided(place, at)
            if not frame.native and (context := _context(plain(frame.function))) is not None:
                return self._ends(self._meaning(context), frame)
        if self.nccl is not None:
            return self._ends(self.nccl, self.waiting_at)
        return self._ends(self._meaning(None), self.waiting_at)

    def _ends(self, place: str, frame: Frame | None) -> ThreadPlace:
        return ThreadPlace(place, site_of(self.frames), frame, self.wait, self.launching)

    def _native(self, frame: Frame) -> str | None:
        name = native_name(frame.function)
        if is_nameless(frame):
            self.driver |= in_driver(frame)
            return None
        if name.startswith(("nccl", "bootstrap")) and name not in WEAK_NATIVE:
            api = _decisive(name, "")
            self.nccl = api or self.nccl or ("comm_init" if name.startswith("bootstrap") else "nccl_host")
            return api
        if self.nccl is None and (place := self._call(frame, name)) is not None:
            return place
        kind = WEAK_NATIVE.get(name)
        if kind is not None and (not self.wait or self.wait == "yield" or (kind, self.wait) in _SHARPER):
            self.wait, self.waiting_at = kind, frame
        return None

    def _call(self, frame: Frame, name: str) -> str | None:
        if name.startswith(GPU_SYNC):
            return "gpu_wait"
        if name.startswith(GPU_LAUNCH):
            self.launching = True
            if self.wait in ("mutex", "gil"):
                return "lock"
            return "gpu_wait" if self.wait else "step"
        if (place := _decisive(name, frame.file or "")) is not None:
            return place
        if _DRIVER_CALL.match(name):
            return "native_call"
        full = frame.function.replace("(anonymous namespace)::", "").lstrip("_")
        return "collective" if full.startswith(COLLECTIVE_NATIVE) or name.startswith(COLLECTIVE_NATIVE) else None

    def _python(self, frame: Frame) -> str | None:
        if frame.function == "<module>":
            return None
        name, file = plain(frame.function), frame.file or ""
        if self.nccl is not None and _decisive(name, file) is None:
            return self.nccl
        kind = _weak(name, file)
        if kind is not None:
            # A file operation that runs Python code of its own, to build a path or decode, does not wait for the file.
            if self.wait != "gil" and not (kind == "file" and self.within):
                self.wait, self.waiting_at = kind, frame
            return None
        place = _decisive(name, file)
        self.within = True
        if place is not None and name in LOOPS and (self.wait in _PATIENT or not self._busy()):
            return "idle_loop"
        return place

    def _busy(self) -> bool:
        return self.thread.state == "active"

    def _decided(self, place: str, at: int) -> ThreadPlace:
        if place == "collective":
            place = self._purpose(at)
        return ThreadPlace(place, site_of(self.frames), self.frames[at], self.wait, self.launching)

    def _purpose(self, at: int) -> str:
        """A collective inside the request broadcast or inside communicator set-up belongs to these."""
        for frame in self.frames[at + 1 :]:
            name = plain(frame.function)
            if name in CONTROL or _decisive(name, frame.file or "") == "control_broadcast":
                return "control_broadcast"
            if name in INIT or _decisive(name, frame.file or "") == "comm_init":
                return "comm_init"
            if name in STEP or name in LOOP_BODY:
                break
        return "collective"

    def _meaning(self, context: str | None) -> str:
        if not self.wait or self.wait == "yield":
            return self._unwaiting(context)
        if self.wait in _HARD:
            return _HARD[self.wait]
        if self.wait == "sleep" and context in (None, "step"):
            return "sleep"
        if context == "step":
            return _IN_STEP.get(self.wait, "lock")
        if context is None:
            return "lock" if self.wait == "event" and site_of(self.frames) else "unknown"
        return context

    def _unwaiting(self, context: str | None) -> str:
        innermost = self.frames[0] if self.frames else None
        if context == "step" and innermost is not None and plain(innermost.function) in RESULT_WAITS and self._busy():
            return "gpu_wait"
        return context or "unknown"


_PATIENT = frozenset({"queue", "poll", "event", "sleep", "message"})
_IN_STEP = {"message": "step", "poll": "socket"}
_HARD = {"mutex": "lock", "gil": "lock", "file": "file_io", "ioctl": "native_call"}
_SHARPER = frozenset({("mutex", "event"), ("gil", "event"), ("poll", "file"), ("gil", "mutex")})


def _context(name: str) -> str | None:
    """What an engine function around a wait says about it."""
    if name in STEP:
        return "step"
    if name in IDLE or name in LOOP_BODY:
        return "idle_loop"
    return "comm_init" if name in INIT else None


def site_of(frames: Sequence[Frame]) -> str:
    """The deepest frame that belongs to the engine, as `function (file)`; "" when the dump shows none."""
    for frame in frames:
        name, file = plain(frame.function), frame.file or ""
        if frame.native:
            if "::" in frame.function and not frame.function.startswith(
                ("c10", "at::", "std::", "pybind11", "torch::")
            ):
                return name
        elif frame.function != "<module>" and not in_files(file, LIBRARY_FILES):
            return f"{name} ({file.rpartition('/')[2]})"
    bottom = next((frame for frame in reversed(frames) if frame.function == "<module>" and not frame.native), None)
    if bottom is None or (bottom.file or "").startswith("<"):
        return ""
    return f"<module> ({(bottom.file or '').rpartition('/')[2]}:{bottom.line})"
