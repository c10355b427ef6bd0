"""The catalogue of drills: what is done to the rehearsal engine, and what the agent has to say."""

import contextlib
import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from sentinel.testing.life import Life, ask, call, rotate
from sentinel.testing.rehearsal.shared import Shared

Act = Callable[[Path, int], None]


def nothing(folder: Path, launcher: int) -> None:
    """Leave the engine as it is."""
    del folder, launcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """`classes` empty: nothing may be suspected. `culprits` None: not checked. Times in seconds at scale 1.

    `tells`: what was done, for a scenario that is more than one act.
    """

    name: str
    about: str
    inject: Act
    classes: tuple[str, ...] = ()
    culprits: tuple[int, ...] | None = None
    undo: Act = nothing
    tells: Callable[[], str] | None = None
    ranks: int = 3
    watch_s: float = 120.0
    watchdog_s: float = 300.0

    @property
    def expects_verdict(self) -> bool:
        """Whether the fault has to be noticed."""
        return bool(self.classes)


def rank_pid(folder: Path, launcher: int, rank: int) -> int:
    """Pid of a rank of this launcher, from its own process table."""
    del folder
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for pid in map(int, children):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"--rank" in words and words[words.index(b"--rank") + 1] == str(rank).encode():
            return pid
    raise RuntimeError(f"rank {rank} of launcher {launcher} is not running")


def _signal(number: signal.Signals, rank: int) -> Act:
    def act(folder: Path, launcher: int) -> None:
        with contextlib.suppress(ProcessLookupError, RuntimeError, FileNotFoundError):
            os.kill(rank_pid(folder, launcher, rank), number)

    return act


def _inside(fault: str, rank: int) -> Act:
    def act(folder: Path, launcher: int) -> None:
        del launcher
        ask(folder / f"fault.{rank}", fault)

    return act


def _shared(name: str, value: int) -> Act:
    def act(folder: Path, launcher: int) -> None:
        del launcher
        Shared(folder / "shared").put(name, value)

    return act


def _pause(folder: Path, launcher: int) -> None:
    del launcher
    call(folder, "/pause_generation")


def _slow(folder: Path, launcher: int) -> None:
    del launcher
    ask(folder / "slow.1", "0.01")


def _rotate_then_stop(folder: Path, launcher: int) -> None:
    """The log is rotated in the very moment of the fault."""
    _signal(signal.SIGSTOP, 1)(folder, launcher)
    rotate(folder)


def _end_compiler(folder: Path, launcher: int) -> None:
    del launcher
    with contextlib.suppress(OSError, ValueError):
        os.kill(int((folder / "compiler.pid").read_text()), signal.SIGKILL)


CATALOGUE: tuple[Scenario, ...] = (
    Scenario(
        name="stopped",
        about="SIGSTOP of one rank",
        inject=_signal(signal.SIGSTOP, 1),
        undo=_signal(signal.SIGCONT, 1),
        classes=("hang.stopped",),
        culprits=(1,),
    ),
    Scenario(
        name="killed",
        about="SIGKILL of one rank",
        inject=_signal(signal.SIGKILL, 1),
        classes=("crash.rank_exit",),
        culprits=(1,),
    ),
    Scenario(
        name="deadlock",
        about="one rank waits for a lock that nobody releases",
        inject=_inside("deadlock", 2),
        classes=("hang.python",),
        culprits=(2,),
    ),
    Scenario(
        name="gil",
        about="native code keeps one rank's interpreter lock",
        inject=_inside("gil", 1),
        classes=("hang.python",),
        culprits=(1,),
    ),
    Scenario(
        name="fifo",
        about="one rank opens a FIFO that never answers",
        inject=_inside("fifo", 1),
        classes=("hang.python", "hang.storage"),
        culprits=(1,),
    ),
    Scenario(
        name="native_loop",
        about="one rank computes natively without end",
        inject=_inside("native_loop", 1),
        classes=("hang.python",),
        culprits=(1,),
    ),
    Scenario(
        name="exception",
        about="one rank raises in its step",
        inject=_inside("exception", 1),
        classes=("crash.rank_exit",),
        culprits=(1,),
    ),
    Scenario(
        name="rotated_and_stopped",
        about="the log is rotated in the moment in which a rank is stopped",
        inject=_rotate_then_stop,
        undo=_signal(signal.SIGCONT, 1),
        classes=("hang.stopped",),
        culprits=(1,),
    ),
    Scenario(
        name="compile",
        about="one rank waits for its compiler children",
        inject=_inside("compile", 1),
        undo=_end_compiler,
        classes=("busy.jit",),
        culprits=(1,),
    ),
    Scenario(
        name="slow_rank",
        about="one rank takes 10 ms longer in each step",
        inject=_slow,
        watch_s=60.0,
    ),
    Scenario(
        name="long_prefill",
        about="one long prefill on all ranks",
        inject=_shared("prefill_tokens", 40_000),
        watch_s=60.0,
    ),
    Scenario(
        name="idle",
        about="the last request ends and nothing is outstanding",
        inject=_shared("running", 0),
        watch_s=60.0,
    ),
    Scenario(
        name="paused",
        about="generation is paused by an admin call",
        inject=_pause,
        watch_s=60.0,
    ),
)


HEALTHY = "healthy"
HEALTHY_ABOUT = "mixed healthy load, as long as --minutes says: nothing may be suspected"


def healthy(life: Life) -> Scenario:
    """Nothing but health, and no suspicion for all of it."""
    return Scenario(name=HEALTHY, about=HEALTHY_ABOUT, inject=life.act, tells=life.told, watch_s=10.0)


def named(name: str) -> Scenario | None:
    """A scenario by name."""
    return next((scenario for scenario in CATALOGUE if scenario.name == name), None)
