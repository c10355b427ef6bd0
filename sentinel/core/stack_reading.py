"""One dump of one process, read: who it is, where it stands, who holds the interpreter, whether a callback is stuck."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sentinel.core.places import ThreadPlace, in_driver, in_files, is_nameless, native_name, place_of, plain
from sentinel.core.wait_tables import ENGINE_LOOPS, WEAK_NATIVE
from sentinel.model.observation import Frame, Stack, Thread

Role = Literal["rank", "core", "frontend", "other"]
"""rank: executes the model; core: vLLM's EngineCore, a rank only where no worker exists; frontend: HTTP, (de)tokenizer,
launcher, data-parallel controller; other: nothing in the dump says."""

SIDE_PLACES = frozenset({"grammar", "kv_transfer", "compile", "gc"})
"""Places of helper threads that matter although another thread decides."""

_BY_FRAME: tuple[tuple[Role, frozenset[str]], ...] = (
    ("core", frozenset({"run_engine_core", "_process_input_queue"})),
    ("frontend", frozenset({
        "run_detokenizer_process", "run_data_parallel_controller_process", "launch_server", "run_server",
        "_launch_subprocesses", "run_api_server", "run_api_server_worker", "serve_http", "run_coordinator",
        "run_tokenizer_worker", "_run_http_server", "run_multi_api_server", "launch_router",
    })),
    ("rank", frozenset({
        "run_scheduler_process", "worker_busy_loop", "worker_main", "_executor_loop", "_executor_loop_overlap",
        "_executor_loop_pp", "executionLoop", "RayWorkerWrapper",
    })),
)  # fmt: skip
_BY_TITLE: tuple[tuple[Role, tuple[str, ...]], ...] = (
    ("frontend", ("detokenizer", "tokenizer_worker", "tokenizer-worker", "data_parallel_controller", "dp_coordinator",
                  "dpcoordinator", "apiserver", "api_server", "http_server", "::http", "::router")),
    ("core", ("::enginecore",)),
    ("rank", ("::scheduler", "::worker", "rayworkerwrapper", "mpi4py.futures.server")),
    ("frontend", ("launch_server", "vllm serve", "trtllm-serve", "sglang serve", "openai.api_server")),
)  # fmt: skip
_DECIDES_LAST = ("idle_loop", "unknown", "frontend", "sleep")
_C_LIBRARY = ("libc.so", "libc-", "libpthread", "ld-linux", "libstdc++", "libm.so", "libgcc")
_THREAD_START = frozenset({"start_thread", "clone", "clone3", "thread_start", "execute_native_thread_routine"})
_MAIN_MARKS = frozenset({"start", "libc_start_main", "libc_start_main_impl", "libc_start_call_main", "Py_BytesMain"})
_LOOP_FILES = (
    "asyncio/", "uvloop/", "uvicorn/", "selectors.py", "zmq/", "multiprocessing/", "threading.py", "queue.py",
    "concurrent/", "subprocess.py", "io_struct.py",
)  # fmt: skip
_FORWARD = frozenset({"forward", "forward_extend", "forward_decode", "_model_forward", "_forward_raw", "forward_idle"})


@dataclass(frozen=True, slots=True)
class Callback:
    """A host callback of the CUDA driver that is running: its function and what it waits for ("" runs)."""

    function: str
    wait: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What one dump says. `thread` names the deciding one; `trail` are its Python frames, to compare two dumps.

    `group` is what two ranks must share to count as standing at the same place: inside a model's forward the layer does
    not count, since the host runs ahead of the GPU there. `holder` is the innermost function of a thread that keeps the
    interpreter lock while it is not executing Python.
    """

    stack: Stack
    role: Role
    place: str
    site: str
    group: str
    thread: str
    frame: Frame | None
    sides: frozenset[str] = frozenset()
    callback: Callback | None = None
    holder: str | None = None
    gil_wanted: bool = False
    trail: tuple[tuple[str, str, int | None], ...] = ()
    has_python: bool = False


def read_stack(stack: Stack) -> Reading:
    """Read one dump; a dump without threads gives place "unknown"."""
    places = [place_of(thread) for thread in stack.threads]
    at = _deciding(stack, places)
    chosen = places[at] if at is not None else ThreadPlace("unknown")
    thread = stack.threads[at] if at is not None else None
    callbacks = [found for each in stack.threads if (found := callback_of(each)) is not None]
    blocked = [found for found in callbacks if found.wait]
    wanted = any(place.wait == "gil" for place in places)
    role = role_of(stack)
    place = "frontend" if role == "frontend" and chosen.place in _DECIDES_LAST else chosen.place
    return Reading(
        stack=stack, role=role, place=place, site=chosen.site, group=_group(chosen, thread), thread=_label(thread),
        frame=chosen.frame,
        sides=frozenset(place.place for k, place in enumerate(places) if k != at and place.place in SIDE_PLACES),
        callback=next(iter((*blocked, *callbacks)), None),
        holder=_holder(stack.threads, places, wanted), gil_wanted=wanted,
        trail=_trail(thread), has_python=any(not frame.native for each in stack.threads for frame in each.frames),
    )  # fmt: skip


def role_of(stack: Stack) -> Role:
    """What kind of process it is: by its frames, else by its title."""
    names = {plain(frame.function) for thread in stack.threads for frame in thread.frames}
    for role, marks in _BY_FRAME:
        if names & marks:
            return role
    title = (stack.title or "").lower()
    for role, fragments in _BY_TITLE:
        if any(fragment in title for fragment in fragments):
            return role
    return "other"


def is_main(thread: Thread, pid: int | None) -> bool:
    """Whether it is the process's first thread."""
    if thread.name == "MainThread" or (pid is not None and thread.tid == pid):
        return True
    bottom = [frame for frame in thread.frames[-6:] if not is_nameless(frame)]
    return any(native_name(frame.function) in _MAIN_MARKS for frame in bottom) or (
        bool(bottom) and bottom[-1].function == "<module>"
    )


def callback_of(thread: Thread) -> Callback | None:
    """The callback that a thread runs for the driver: driver frames at its start, the process's own code above them."""
    frames = list(thread.frames)
    while frames and _is_start(frames[-1]):
        frames.pop()
    driver = 0
    while frames and in_driver(frames[-1]):
        frames.pop()
        driver += 1
    own = [frame for frame in frames if not (_is_start(frame) or in_driver(frame) or _is_wait(frame))]
    if not driver or not own:
        return None
    return Callback(plain(own[-1].function), _wait_of(frames))


def frontend_busy(stack: Stack) -> bool | None:
    """Whether an event loop is kept from its loop: code of the program on top of it. None when no loop is seen."""
    for thread in stack.threads:
        if is_main(thread, stack.pid):
            return _loop_busy(thread)
    return None


def _loop_busy(thread: Thread) -> bool | None:
    python = [frame for frame in thread.frames if not frame.native]
    in_loop = [in_files(frame.file or "", _LOOP_FILES) for frame in python]
    if not python or not any(in_loop):
        return None
    return not in_loop[0] and python[0].function != "<module>" and any(in_loop[1:]) and thread.state != "unknown"


def _deciding(stack: Stack, places: Sequence[ThreadPlace]) -> int | None:
    """The main thread, unless it only waits while a thread that does the engine's steps is somewhere."""
    candidates = [k for k, thread in enumerate(stack.threads) if callback_of(thread) is None]
    main = next((k for k in candidates if is_main(stack.threads[k], stack.pid)), None)
    engine = [k for k in candidates if k != main and _runs_engine(stack.threads[k])]
    if main is not None and not _gives_way(places[main]):
        return main
    busy = next((k for k in engine if not _gives_way(places[k])), None)
    if busy is not None:
        return busy
    if main is not None:
        return main
    return next(iter(engine), next((k for k in candidates if not _gives_way(places[k])), next(iter(candidates), None)))


def _gives_way(place: ThreadPlace) -> bool:
    return place.place in _DECIDES_LAST or (place.place == "lock" and place.wait in ("event", "queue"))


def _runs_engine(thread: Thread) -> bool:
    return any(plain(frame.function) in ENGINE_LOOPS for frame in thread.frames)


def _is_start(frame: Frame) -> bool:
    if not frame.native:
        return False
    base = (frame.file or "").rpartition("/")[2]
    in_c_library = base.startswith(_C_LIBRARY)
    return native_name(frame.function) in _THREAD_START or in_c_library or (is_nameless(frame) and not base)


def _is_wait(frame: Frame) -> bool:
    return frame.native and native_name(frame.function) in WEAK_NATIVE


def _wait_of(frames: Sequence[Frame]) -> str:
    names = [native_name(frame.function) for frame in frames if frame.native]
    kinds = [WEAK_NATIVE[name] for name in names if name in WEAK_NATIVE]
    if "gil" in kinds:
        return "gil"
    return next((kind for kind in kinds if kind != "yield"), "")


def _holder(threads: Sequence[Thread], places: Sequence[ThreadPlace], wanted: bool) -> str | None:
    for thread, place in zip(threads, places, strict=True):
        if thread.owns_gil and thread.frames:
            top = thread.frames[0]
            outside = top.native and not _is_interpreter(top)
            room = place.launching and place.place != "native_call" and not wanted
            if thread.state == "idle" or (outside and not room):
                return plain((place.frame or top).function)
    return None


def _group(place: ThreadPlace, thread: Thread | None) -> str:
    if thread is None or place.launching:
        return ""
    if any(not frame.native and plain(frame.function) in _FORWARD for frame in thread.frames):
        return "forward"
    return place.site


def _is_interpreter(frame: Frame) -> bool:
    return (frame.file or "").rpartition("/")[2].startswith(("python", "libpython"))


def _trail(thread: Thread | None) -> tuple[tuple[str, str, int | None], ...]:
    if thread is None:
        return ()
    return tuple(
        (plain(frame.function), (frame.file or "").rpartition("/")[2], frame.line)
        for frame in thread.frames
        if not frame.native
    )


def _label(thread: Thread | None) -> str:
    if thread is None:
        return ""
    return thread.name or (f"thread {thread.tid}" if thread.tid is not None else "thread")
