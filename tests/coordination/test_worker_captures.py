"""A host's capture for the coordinator: whose evidence it is, and what comes of it when none can be kept."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from sentinel.bus.embedded import EmbeddedBus
from sentinel.coordinator.hand import Hand
from sentinel.coordinator.ledger import MemoryLedger
from sentinel.coordinator.names import ACKS
from sentinel.coordinator.worker import Worker
from sentinel.groups import Group
from sentinel.model.group import Ack, Command
from sentinel.plumbing.clock import SystemClock
from sentinel.testing.ports import free_port
from tests.agent.engines import Rehearsal, rehearsal
from tests.agent.targets import eventually

COMMAND = Command(
    id="i/capture1/here", epoch=1, beat=0, verb="capture", group="g", host="here", incarnation="", incident="i"
)


@dataclass
class Agent:
    """An agent that takes evidence when it is first asked, and has it when it is asked again."""

    folder: Path
    asked: list[str] = field(default_factory=list)

    def of(self, key: str) -> Path | None:
        self.asked.append(key)
        return self.folder if len(self.asked) > 1 else None

    def taking(self, key: str) -> bool:
        return key == self.asked[-1]


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[tuple[Rehearsal, Group]]:
    port = free_port()
    with rehearsal(tmp_path / "engine", 1, "--port", str(port)) as running:
        yield running, Group(hosts=("here",), port=port)


def ack_of(worker: Worker, bus: EmbeddedBus) -> Ack:
    """What the worker answers."""
    hand = Hand("here", (), bus, MemoryLedger(), worker)
    hand.ledger.begin(COMMAND)
    worker.perform(COMMAND, hand)

    def told() -> bool:
        hand.turn(0.0)
        return bool(bus.follow(ACKS, 0))

    eventually(told)
    return msgspec.json.decode(bus.follow(ACKS, 0)[0].data, type=Ack)


def test_evidence_that_the_agent_takes_just_now_is_waited_for(tmp_path: Path, engine: tuple[Rehearsal, Group]) -> None:
    """False: every process is held by two stack tools at once, and the coordinator knows later what it waits for."""
    running, group = engine
    agent, bus = Agent(running.folder), EmbeddedBus(tmp_path / "bus")
    worker = Worker("here", {"g": group}, bus, SystemClock(), tmp_path / "state", agent.of, agent.taking)

    ack = ack_of(worker, bus)

    assert ack.outcome == "done" and bus.get(ack.evidence)
    assert agent.asked == [running.engine().key] * 2
    assert not (tmp_path / "state").exists()


def test_evidence_that_cannot_be_kept_is_a_failed_capture(tmp_path: Path, engine: tuple[Rehearsal, Group]) -> None:
    """False: a full disk leaves the coordinator without an answer, and the engine stuck."""
    _, group = engine
    (tmp_path / "full").touch()
    bus = EmbeddedBus(tmp_path / "bus")
    worker = Worker("here", {"g": group}, bus, SystemClock(), tmp_path / "full", lambda _key: None)

    ack = ack_of(worker, bus)

    assert ack.outcome == "failed" and str(tmp_path / "full") in ack.why
