"""The scene of the row-store drill: engine, clients, Sentinel, and everything that can be seen of them from outside.

Sentinel runs as child processes with configuration files; the drill reads their bus and their incidents, as any other
program of the box could.
"""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from sentinel.actions import stores
from sentinel.bus.embedded import EmbeddedBus
from sentinel.coordinator.asking import state_of
from sentinel.coordinator.names import ACKS, FOLDER, LEASE, NOTICES, bus_folder, command_slot
from sentinel.groups import Store
from sentinel.model.cluster import Delays, GroupState, Told
from sentinel.model.engine import Engine
from sentinel.model.group import Ack, Command, Lease
from sentinel.plumbing.clock import Clock
from sentinel.plumbing.subprocesses import run_bounded
from sentinel.testing.packaged.engine import PackagedEngine
from sentinel.testing.packaged.namespaces import inside
from sentinel.testing.packaged.variants import Variant
from sentinel.testing.packaged.watching import Service, Watch, timing, wait_for

GROUP, HOST = "drill", "here"
HOLD_S = 60.0
TERM_S, VERIFY_S = 5.0, 30.0
TOOL_DELAYS = {"capture_s": Delays().capture_s, "unblock_s": Delays().unblock_s}
"""Not divided: tools take the time that they need."""
VERB_S = 60.0
POLL_S, SCAN_S = 0.05, 0.5
SQUATTER = """
import socket, sys, time
while True:
    with socket.socket() as mine:
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            mine.bind(("127.0.0.1", int(sys.argv[1])))
            mine.listen()
        except OSError:
            time.sleep(0.02)
            continue
        time.sleep(3600)
"""
"""Takes a port as soon as it is free."""


@dataclass(slots=True)
class Scene:
    """Times in monotonic seconds. `told`, `acks` and `done` grow with every `look`."""

    variant: Variant
    engine: PackagedEngine
    clock: Clock
    folder: Path
    time_scale: float
    told: list[tuple[float, Told]] = field(default_factory=list)
    acks: list[tuple[float, Ack]] = field(default_factory=list)
    done: list[tuple[float, str]] = field(default_factory=list)
    agent: Watch = field(init=False)
    coordinator: Service | None = field(init=False, default=None)
    _bus: EmbeddedBus | None = None
    _after: dict[str, int] = field(default_factory=lambda: {NOTICES: 0, ACKS: 0})

    def __post_init__(self) -> None:
        environ = self.engine.environ()
        settings = {**self._settings(), **self._obstructed()}
        self.agent = Watch(self.folder / "box", settings, environ, self.engine.name, self.engine.head)
        if self.variant.victim:
            # Two processes, so that either can be killed without the other.
            self.coordinator = Service(self.folder / "box", settings, environ, ("coordinate",))

    def _settings(self) -> dict[str, Any]:
        scale = self.time_scale
        size = sum(path.stat().st_size for path in (self.engine.folder / "rows").glob("*"))
        store = {"folder": str(self.engine.run_folder), "bytes": size, **self.variant.store}
        group = {
            "hosts": [HOST],
            "port": self.engine.port,
            "supervisor": {"kind": "packaged", "cluster": str(self.engine.cluster)},
            "store": store,
            # The launcher's own programs take as long as they take.
            "term_s": TERM_S,
            "verify_s": VERIFY_S / scale,
        }
        policy = {"mode": "auto", "hold_s": HOLD_S, "unblock_first": False, **self.variant.policy}
        coordinator = {"host": HOST, "embedded": not self.variant.victim, "metrics_listen": ""}
        delays = {name: each * scale for name, each in TOOL_DELAYS.items()}
        found = {"groups": {GROUP: group}, "policy": policy, "delays": delays, "coordinator": coordinator}
        return {**found, "timing": timing(scale)} if timing(scale) else found

    def _obstructed(self) -> dict[str, Any]:
        """For a box that cannot keep evidence: where its folders should be is a file."""
        if self.variant.obstacle != "no_room":
            return {}
        return {"folders": {"incidents": str(self.folder / "full" / "incidents")}}

    @property
    def bus(self) -> EmbeddedBus:
        """The bus of the box."""
        if self._bus is None:
            self._bus = EmbeddedBus(bus_folder(self.agent.state))
        return self._bus

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """The services run while the block runs."""
        with contextlib.ExitStack() as stack:
            if self.variant.obstacle == "no_room":
                (self.folder / "full").write_bytes(b"")
                (self.agent.state / FOLDER).mkdir(parents=True)
                (self.agent.state / FOLDER / "captures").write_bytes(b"")
            if self.coordinator is not None:
                stack.enter_context(self.coordinator.running())
            stack.enter_context(self.agent.running())
            stack.callback(self.close)
            yield

    def close(self) -> None:
        """Let go of the bus."""
        if self._bus is not None:
            self._bus.close()
            self._bus = None

    @contextlib.contextmanager
    def squatter(self) -> Iterator[None]:
        """Somebody takes the engine's port when it becomes free."""
        argv = [*inside(self.engine.head), sys.executable, "-c", SQUATTER, str(self.engine.port)]
        with subprocess.Popen(argv) as process:
            try:
                yield
            finally:
                process.kill()

    def look(self) -> None:
        """Read what is new on the bus."""
        now_s = self.clock.now().mono_s
        for record in self.bus.follow(NOTICES, self._after[NOTICES]):
            self._after[NOTICES] = record.number
            self.told.append((now_s, msgspec.json.decode(record.data, type=Told)))
        for record in self.bus.follow(ACKS, self._after[ACKS]):
            self._after[ACKS] = record.number
            self.acks.append((now_s, msgspec.json.decode(record.data, type=Ack)))

    def until(self, within_s: float, happened: Callable[[], bool], why: str = "", *, every_s: float = POLL_S) -> bool:
        """Look until something happened. Raises RuntimeError with `why`, when it is given, after that time."""

        def seen() -> bool:
            self.look()
            return happened()

        came = wait_for(self.clock, within_s, seen, every_s)
        if why and not came:
            raise RuntimeError(f"{why} within {within_s:g} s: {self.agent.said}")
        return came

    def leader(self) -> str:
        """Who holds the lease; empty for nobody."""
        slot = self.bus.read(LEASE)
        return "" if slot is None else msgspec.json.decode(slot.data, type=Lease).holder

    def state(self) -> GroupState:
        """The group as the coordinator saved it last."""
        state = state_of(self.bus)
        return GroupState() if state is None else state.groups.get(GROUP, GroupState())

    def command(self) -> str:
        """The verb that the host is asked for now; empty for none."""
        slot = self.bus.read(command_slot(HOST, GROUP))
        return "" if slot is None else msgspec.json.decode(slot.data, type=Command).verb

    def mode(self) -> str:
        """The store's mode in force, from the telemetry pages of all ranks; empty when there is no page."""
        report = stores.report(Store(folder=str(self.engine.run_folder)))
        return "" if report is None else report.mode

    def launches(self) -> int:
        """How often the launcher has begun to start the engine's head."""
        return len(list((self.engine.folder / "one" / self.engine.name).glob(f"{self.engine.name}-*")))

    def order(self, *words: str) -> None:
        """A verb of the command line, as a person would use it. Raises RuntimeError when it is refused."""
        argv = self.agent.command(*words, "--reason", "drill")
        ran = run_bounded(argv, deadline_s=VERB_S, env=self.engine.environ())
        if not ran.ok:
            raise RuntimeError(f"`sentinel {' '.join(words)}`: {ran.stdout.decode(errors='replace')[-500:]}")

    def note(self, words: str) -> float:
        """Remember something that the drill did; returns when."""
        now_s = self.clock.now().mono_s
        self.done.append((now_s, words))
        return now_s

    def warm(self, seen: Engine) -> bool:
        """Whether the agent sees this engine work, at a pace that it knows, and somebody coordinates."""
        return self.agent.is_at_work(seen.root.pid, self.clock) and bool(self.leader())


def tokens_after(met: Path, after_s: float) -> float | None:
    """When clients got tokens again after an instant; None when they did not."""
    lines = (line.split(" ", 1) for line in met.read_text().splitlines())
    times: Sequence[float] = [float(line[0]) for line in lines if len(line) == 2 and line[1] == "token"]
    return next((at_s for at_s in times if at_s > after_s), None)
