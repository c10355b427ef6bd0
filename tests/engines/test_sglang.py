"""A real SGLang, unpatched, freezes in ways that its own watchdog sees late or never; the real agent watches it."""

import signal
from pathlib import Path

import pytest

from tests.engines.cases import Fault, Ward, fault_in, keep, release_pipe, signal_to, strike
from tests.engines.healthy import live

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
STOP, CONTINUE, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL

# Two ranks without a metrics page and with a watchdog that leaves time; one rank with both and a short one, which
# is a thread of the frozen process and so freezes with it.
ARGUMENTS = {
    1: ("--watchdog-timeout", "20", "--enable-metrics"),
    2: ("--watchdog-timeout", "100", "--decode-log-interval", "10"),
}

TWO_RANKS = (
    Fault(
        name="open-blocked",
        inject=fault_in("open", "sglang::scheduler_TP1"),
        undo=release_pipe,
        kinds=("hang.python", "hang.storage"),
        culprits=(1,),
    ),
    Fault(
        name="scheduler-stopped",
        inject=signal_to("sglang::scheduler_TP1", STOP),
        undo=signal_to("sglang::scheduler_TP1", CONTINUE),
        kinds=("hang.stopped",),
        culprits=(1,),
    ),
)

ONE_RANK = (
    Fault(
        name="interpreter-held",
        inject=fault_in("gil", "sglang::scheduler", "60"),
        kinds=("hang.python",),
        culprits=(0,),
    ),
    Fault(
        name="scheduler-stopped",
        inject=signal_to("sglang::scheduler", STOP),
        undo=signal_to("sglang::scheduler", CONTINUE),
        kinds=("hang.stopped",),
        culprits=(0,),
    ),
    Fault(
        name="scheduler-killed",
        inject=signal_to("sglang::scheduler", KILL),
        undo=None,
        kinds=("crash.rank_exit",),
        culprits=(0,),
    ),
)


def ward_of(wards: dict[str, Ward], ranks: int, out: Path) -> Ward:
    """The ward of this size; the others are cleared, because an engine needs both cores."""
    for other in wards.values():
        if other.ranks != ranks:
            other.discard()
    return wards.setdefault(f"sglang-{ranks}", Ward("sglang", ranks, out, ARGUMENTS[ranks]))


@pytest.mark.parametrize(
    ("ranks", "fault"),
    [(2, fault) for fault in TWO_RANKS] + [(1, fault) for fault in ONE_RANK],
    ids=lambda given: given.name if isinstance(given, Fault) else f"tp{given}",
)
def test_a_freeze_is_suspected_captured_and_judged_first(
    ranks: int, fault: Fault, wards: dict[str, Ward], out: Path
) -> None:
    """False: a real SGLang hangs or dies, and the operator learns it late, without evidence, or blames a wrong rank."""
    measured = strike(ward_of(wards, ranks, out), fault)
    keep(out, measured)

    assert measured.verdict in fault.kinds, measured
    assert tuple(measured.culprits) == fault.culprits, measured
    if fault.undo is not None:
        assert measured.suspected_s is not None, measured
        assert measured.noticed == "", measured


def test_a_healthy_life_raises_nothing(wards: dict[str, Ward], out: Path) -> None:
    """False: without a metrics page, the end of the last request looks like a hang."""
    assert live(ward_of(wards, 2, out), "sglang::scheduler_TP1", signs_when_idle=False) == []
