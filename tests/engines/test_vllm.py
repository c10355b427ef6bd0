"""A real vLLM, unpatched, freezes in every way that can be brought about from outside; the real agent watches it."""

import signal
from pathlib import Path

import pytest

from tests.engines.cases import Fault, Ward, fault_in, keep, release_pipe, signal_to, strike
from tests.engines.healthy import live

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
STOP, CONTINUE, KILL = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL

# The engine gives up on a worker after this long; the agent has to be done well before.
SETTINGS = {"VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "120"}

TWO_RANKS = (
    Fault(
        name="worker-stopped",
        inject=signal_to("VLLM::Worker_TP1", STOP),
        undo=signal_to("VLLM::Worker_TP1", CONTINUE),
        kinds=("hang.stopped",),
        culprits=(1,),
    ),
    Fault(
        name="worker-stopped-while-idle",
        idle=True,
        inject=signal_to("VLLM::Worker_TP1", STOP),
        undo=signal_to("VLLM::Worker_TP1", CONTINUE),
        kinds=("hang.stopped",),
        culprits=(1,),
    ),
    Fault(
        name="core-stopped",
        inject=signal_to("VLLM::EngineCore", STOP),
        undo=signal_to("VLLM::EngineCore", CONTINUE),
        kinds=("hang.stopped",),
        culprits=(),
        process="VLLM::EngineCore",
    ),
    Fault(
        name="frontend-stopped",
        inject=signal_to("", STOP),
        undo=signal_to("", CONTINUE),
        kinds=("hang.frontend",),
        culprits=(),
    ),
    Fault(
        name="open-blocked",
        inject=fault_in("open", "VLLM::Worker_TP1"),
        undo=release_pipe,
        kinds=("hang.python", "hang.storage"),
        culprits=(1,),
    ),
    Fault(
        name="interpreter-held",
        inject=fault_in("gil", "VLLM::Worker_TP1", "75"),
        kinds=("hang.python",),
        culprits=(1,),
    ),
    Fault(
        name="worker-killed",
        inject=signal_to("VLLM::Worker_TP1", KILL),
        undo=None,
        kinds=("crash.rank_exit",),
        culprits=(1,),
    ),
)

ONE_RANK = (
    Fault(
        name="worker-stopped",
        inject=signal_to("VLLM::Worker", STOP),
        undo=signal_to("VLLM::Worker", CONTINUE),
        kinds=("hang.stopped",),
        culprits=(0,),
    ),
    Fault(
        name="core-killed",
        inject=signal_to("VLLM::EngineCore", KILL),
        undo=None,
        kinds=("crash.rank_exit",),
        culprits=(),
    ),
)


def ward_of(wards: dict[str, Ward], ranks: int, out: Path) -> Ward:
    """The ward of this size; the others are cleared, because an engine needs both cores."""
    for other in wards.values():
        if other.ranks != ranks:
            other.discard()
    return wards.setdefault(f"vllm-{ranks}", Ward("vllm", ranks, out, settings=SETTINGS))


@pytest.mark.parametrize(
    ("ranks", "fault"),
    [(2, fault) for fault in TWO_RANKS] + [(1, fault) for fault in ONE_RANK],
    ids=lambda given: given.name if isinstance(given, Fault) else f"tp{given}",
)
def test_a_freeze_is_suspected_captured_and_judged_first(
    ranks: int, fault: Fault, wards: dict[str, Ward], out: Path
) -> None:
    """False: a real vLLM hangs or dies, and the operator learns it late, without evidence, or blames the wrong rank."""
    measured = strike(ward_of(wards, ranks, out), fault)
    keep(out, measured)

    assert measured.verdict in fault.kinds, measured
    assert tuple(measured.culprits) == fault.culprits and measured.named, measured
    if fault.undo is not None:
        assert measured.suspected_s is not None, measured
        assert measured.noticed == "", measured
        assert measured.resumed, measured


def test_a_healthy_life_raises_nothing(wards: dict[str, Ward], out: Path) -> None:
    """False: operators are woken by a slow first token, a burst, an idle night, a shutdown or a restart."""
    assert live(ward_of(wards, 2, out), "VLLM::Worker_TP1", signs_when_idle=True) == []
