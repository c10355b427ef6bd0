"""Facts from single threads and the GPU's side: stuck callbacks, the interpreter lock, kernels, front ends."""

from collections import defaultdict
from collections.abc import Iterator

from sentinel.core.fact import Cite, Fact, FactSpec, unknown
from sentinel.core.facts.stacks import CITED, NO_STACK, cites, stands
from sentinel.core.picture import Picture
from sentinel.core.places import plain
from sentinel.core.stack_reading import Reading, frontend_busy
from sentinel.core.stack_views import RankView, stopped_processes, views, where
from sentinel.model.observation import GpuKernels, Stack

_ALL_THREADS = frozenset({"eu-stack", "gdb", "pystack"})
_COMPILER_WAITS = frozenset({"communicate", "_communicate", "_try_wait", "waitpid", "wait4", "_read_thread"})
_WAIT_WORDS = {
    "mutex": "a mutex", "gil": "the interpreter lock", "event": "a condition", "queue": "a queue",
    "file": "a file read", "sleep": "a timer", "poll": "a socket", "ioctl": "the driver",
}  # fmt: skip


def _callback_blocked_ranks(picture: Picture) -> Fact:
    joined = picture.memo(views)
    looked = [view for view in joined.ranks.values() if any(_shows_all_threads(each) for each in view.readings)]
    blocked = [(view, each) for view in joined.ranks.values() for each in view.readings if _stuck(each)]
    if not looked and not blocked:
        return unknown("native stacks of all threads (eu-stack, pystack --native-all) or thread tables")
    said = [_cite_callback(view.rank, reading) for view, reading in blocked]
    return Fact(value=tuple(sorted({view.rank for view, _ in blocked})), cites=tuple(said[:CITED]) or cites(looked))


def _shows_all_threads(reading: Reading) -> bool:
    return reading.stack.tool in _ALL_THREADS and reading.stack.native and len(reading.stack.threads) > 1


def _stuck(reading: Reading) -> bool:
    return reading.callback is not None and reading.callback.wait != ""


def _cite_callback(rank: int, reading: Reading) -> Cite:
    callback = reading.callback
    function, wait = (callback.function, callback.wait) if callback is not None else ("", "")
    says = f"rank {rank}: host callback {function} waits for {_WAIT_WORDS.get(wait, wait)}"
    return Cite(says, reading.stack.origin)


def _gil_holder_ranks(picture: Picture) -> Fact:
    """A thread keeps the interpreter lock while it sleeps or is in a native call; stopped processes do not count."""
    joined = picture.memo(views)
    stopped = picture.memo(stopped_processes)
    told = [view for view in joined.ranks.values() if any(_tells_gil(each.stack) for each in view.readings)]
    if not told:
        return unknown("py-spy dump --json or --native, or pystack, of every rank")
    held = [
        (view, each)
        for view in joined.ranks.values()
        for each in view.readings
        if each.holder is not None and (each.stack.host, each.stack.pid) not in stopped and view.place != "gc"
    ]
    said = [
        Cite(f"rank {view.rank}: the interpreter lock is held in {each.holder}", each.stack.origin)
        for view, each in held
    ]
    return Fact(value=tuple(sorted({view.rank for view, _ in held})), cites=tuple(said[:CITED]) or cites(told))


def _tells_gil(stack: Stack) -> bool:
    return any(thread.owns_gil is not None for thread in stack.threads)


def _grammar_active(picture: Picture) -> Fact:
    return _anywhere(picture, "grammar")


def _kv_transfer_active(picture: Picture) -> Fact:
    return _anywhere(picture, "kv_transfer")


def _anywhere(picture: Picture, place: str) -> Fact:
    """Whether any engine process, EngineCore included, has a thread at a place."""
    joined = picture.memo(views)
    looked = [*(view.chosen for view in joined.ranks.values()), *joined.cores]
    if not looked:
        return unknown(NO_STACK)
    hits: list[RankView] = [view for view in joined.ranks.values() if stands(view, place)]
    cores = [core for core in joined.cores if core.place == place or place in core.sides]
    said = (*cites(hits), *(Cite(f"a thread of EngineCore is at {place}", core.stack.origin) for core in cores))
    other = tuple(Cite(f"{where(each)} ({each.place})", each.stack.origin) for each in looked[:CITED])
    return Fact(value=bool(hits or cores), cites=said or other)


def _busy_fronts(picture: Picture) -> Fact:
    """An event loop that code of the program keeps from its loop in every dump of that process."""
    by_pid: dict[tuple[str | None, int | None], list[Reading]] = defaultdict(list)
    for reading in picture.memo(views).fronts:
        if frontend_busy(reading.stack) is not None:
            by_pid[(reading.stack.host, reading.stack.pid)].append(reading)
    if not by_pid:
        return unknown("a stack of the HTTP or tokenizer process")
    busy = [kept[-1] for kept in by_pid.values() if all(frontend_busy(each.stack) for each in kept)]
    shown = busy or [kept[-1] for kept in by_pid.values()]
    said = tuple(Cite(f"front end {each.stack.pid} is in {where(each)}", each.stack.origin) for each in shown[:CITED])
    return Fact(value=bool(busy), cites=said)


def _forked_compiler(picture: Picture) -> Fact:
    joined = picture.memo(views)
    if not joined.ranks:
        return unknown(NO_STACK)
    compiling = [view for view in joined.ranks.values() if stands(view, "compile")]
    forked = [view for view in compiling if any(_waits_for_child(each) for each in view.readings)]
    return Fact(value=bool(forked), cites=cites(forked or compiling or joined.ranks.values()))


def _waits_for_child(reading: Reading) -> bool:
    names = (plain(frame.function) for thread in reading.stack.threads for frame in thread.frames)
    return reading.place == "compile" and any(name in _COMPILER_WAITS for name in names)


def resident(picture: Picture) -> tuple[tuple[GpuKernels, int | None], ...]:
    """Kernel listings with their rank: by process or name, else the only rank that a stack places on that host."""
    hosts: dict[str, set[int]] = defaultdict(set)
    for view in picture.memo(views).ranks.values():
        for reading in view.readings:
            if reading.stack.host is not None:
                hosts[reading.stack.host].add(view.rank)
    return tuple((seen, _kernel_rank(picture, seen, hosts)) for seen in picture.all(GpuKernels))


def _kernel_rank(picture: Picture, seen: GpuKernels, hosts: dict[str, set[int]]) -> int | None:
    known = picture.rank_of(seen)
    if known is not None or seen.host is None:
        return known
    there = hosts.get(seen.host, set())
    return next(iter(there)) if len(there) == 1 else None


def is_nccl(kernel: str) -> bool:
    """Whether a kernel is one of NCCL's device kernels."""
    return plain(kernel).startswith(("ncclDevKernel", "ncclKernel", "ncclSymk", "nccl"))


def _kernel_spin_ranks(picture: Picture) -> Fact:
    return _kernels(picture, nccl=False)


def _nccl_kernel_ranks(picture: Picture) -> Fact:
    return _kernels(picture, nccl=True)


def _kernels(picture: Picture, *, nccl: bool) -> Fact:
    listings = picture.memo(resident)
    if not listings:
        return unknown("resident kernels of every GPU (cuda-gdb, after the restart is decided)")
    hits = [(seen, rank) for seen, rank in listings if any(is_nccl(each) is nccl for each in seen.kernels)]
    said = tuple(_cite_kernels(seen, rank) for seen, rank in (hits or listings)[:CITED])
    return Fact(value=tuple(sorted({rank for _, rank in hits if rank is not None})), cites=said)


def _cite_kernels(seen: GpuKernels, rank: int | None) -> Cite:
    whose = f"rank {rank}" if rank is not None else (seen.host or "a GPU")
    return Cite(f"{whose}: resident kernels {', '.join(_short(seen.kernels)) or 'none'}", seen.origin)


def _short(kernels: tuple[str, ...]) -> Iterator[str]:
    for kernel in sorted(set(kernels))[:CITED]:
        yield plain(kernel)


def _kernel_spin_hosts(picture: Picture) -> Fact:
    listings = picture.memo(resident)
    if not listings:
        return unknown("resident kernels of every GPU (cuda-gdb, after the restart is decided)")
    hits = [(seen, rank) for seen, rank in listings if any(not is_nccl(each) for each in seen.kernels)]
    hosts = {seen.host for seen, _ in hits if seen.host is not None}
    return Fact(value=tuple(sorted(hosts)), cites=tuple(_cite_kernels(*each) for each in (hits or listings)[:CITED]))


FACTS: tuple[FactSpec, ...] = (
    FactSpec(
        name="stack.callback_blocked_ranks", unit="ranks", compute=_callback_blocked_ranks,
        about="Ranks in which a CUDA host callback is running and waits for a lock, a read or the interpreter.",
    ),
    FactSpec(
        name="stack.place_callback_ranks", unit="ranks", compute=_callback_blocked_ranks,
        about="Ranks whose host callback is blocked (the deciding thread mostly waits for the GPU then).",
    ),
    FactSpec(
        name="stack.gil_holder_ranks", unit="ranks", compute=_gil_holder_ranks,
        about="Ranks in which a thread keeps the interpreter lock while it sleeps or is in a native call.",
    ),
    FactSpec(
        name="stack.grammar_active", unit="bool", compute=_grammar_active,
        about="A thread of any engine process compiles or applies a grammar.",
    ),
    FactSpec(
        name="stack.kv_transfer_active", unit="bool", compute=_kv_transfer_active,
        about="A thread of any engine process waits in a KV-cache transfer or lookup.",
    ),
    FactSpec(
        name="stack.frontend_busy", unit="bool", compute=_busy_fronts,
        about="A front end's event loop is kept from its loop by code of the program.",
    ),
    FactSpec(
        name="stack.forked_compiler", unit="bool", compute=_forked_compiler,
        about="A compiling rank waits for a compiler process that it started.",
    ),
    FactSpec(
        name="stack.kernel_spin_ranks", unit="ranks", compute=_kernel_spin_ranks,
        about="Ranks on whose GPU a kernel that is not NCCL's is resident.",
    ),
    FactSpec(
        name="stack.kernel_spin_hosts", unit="hosts", compute=_kernel_spin_hosts,
        about="Hosts on whose GPU a kernel that is not NCCL's is resident.",
    ),
    FactSpec(
        name="stack.nccl_kernel_ranks", unit="ranks", compute=_nccl_kernel_ranks,
        about="Ranks on whose GPU a NCCL kernel is resident.",
    ),
)  # fmt: skip
