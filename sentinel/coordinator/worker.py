"""The host's actor: finds a group's engine; captures, probes, stops, starts and switches it on threads of its own."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from sentinel.actions import stores, tokens
from sentinel.actions.stopping import Stop
from sentinel.actions.supervisors import Owner, by_process, owner_of
from sentinel.agent import procfs
from sentinel.agent.capture import Capture
from sentinel.agent.discovery import Discovery
from sentinel.bus.bus import BLOB_BYTES_MAX, Bus, BusError
from sentinel.coordinator.hand import Hand
from sentinel.evidence.load import load
from sentinel.groups import Group
from sentinel.model.engine import Engine, ProcessId
from sentinel.model.group import Ack, AckOutcome, Command
from sentinel.plumbing.clock import Clock

POLL_S = 0.2
PROBE_S = 5.0
PROBES = 2
CAPTURE_BUDGET_S = 10.0
SHIPPED_MAX = 20_000
AGENT_CAPTURE_S = 20.0
"""An agent's capture is waited for this long: two at once would hold every process twice, and take longer."""
Judged = Callable[[str], Path | None]
"""Where this host's own agent keeps the evidence of an engine's open incident, by the engine's key."""


@dataclass(slots=True)
class Worker:
    """One host's hands on its groups. `taking`: whether the host's agent takes evidence of an engine just now."""

    host: str
    groups: Mapping[str, Group]
    bus: Bus
    clock: Clock
    folder: Path
    judged: Judged
    taking: Callable[[str], bool] = lambda _key: False
    time_scale: float = 1.0
    stop: threading.Event = field(default_factory=threading.Event)
    _owners: dict[str, Owner] = field(default_factory=dict)
    _discovery: Discovery = field(default_factory=Discovery)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        for name, group in self.groups.items():
            if group.supervisor is not None:
                self._owners[name] = owner_of(group.supervisor)

    def seen(self, group: str) -> tuple[Engine | None, str | None]:
        """The group's engine and incarnation, from one look at the host; None and None when several engines fit.

        A group without a supervisor is named by its root process.
        """
        with self._lock:
            fitting = matching(self.groups[group], self._discovery.scan())
        if len(fitting) > 1:
            return None, None
        engine = fitting[0] if fitting else None
        root = None if engine is None else engine.root
        owner = self._owners.get(group)
        return engine, by_process(root) if owner is None else owner.running(root)

    def engine(self, group: str) -> Engine | None:
        """The group's engine as it runs now; None when none runs or several fit."""
        return self.seen(group)[0]

    def running(self, group: str) -> str | None:
        """The incarnation that runs now; empty when none does, None when that cannot be told."""
        return self.seen(group)[1]

    def resolve(self, command: Command, running: str | None) -> Ack | None:
        """What a command came to whose agent ended in the middle, by looking at the world."""
        if command.verb == "stop" and running == "":
            return Ack(
                id=command.id, host=self.host, outcome="done", why="seen to be gone after a restart of the agent"
            )
        if command.verb == "start" and running:
            return Ack(id=command.id, host=self.host, outcome="done", incarnation=running)
        if command.verb == "unblock" or (command.verb == "start" and running is None):
            return Ack(id=command.id, host=self.host, outcome="abandoned", why="the agent ended while it did it")
        return None

    def perform(self, command: Command, hand: Hand) -> None:
        """Begin on a thread; the acknowledgement comes back through the hand."""
        began_s = self.clock.now().mono_s

        def work() -> None:
            ack = self._do(command)
            hand.done(msgspec.structs.replace(ack, took_s=round(self.clock.now().mono_s - began_s, 3)))

        threading.Thread(target=work, name=f"act:{command.verb}", daemon=True).start()

    def _do(self, command: Command) -> Ack:
        deeds: dict[str, Callable[[Command, Group], Ack]] = {
            "capture": self._capture,
            "probe": self._probe,
            "stop": self._stop,
            "start": self._start,
            "ready": self._ready,
            "store_check": self._store_check,
            "store_set": self._store_set,
            "unblock": self._unblock,
        }
        return deeds[command.verb](command, self.groups[command.group])

    def _capture(self, command: Command, group: Group) -> Ack:
        """Ship what this host's agent has taken, or take it now; bounded, and never a reason not to go on."""
        engine = self.engine(command.group)
        if engine is None:
            return self._ack(command, "failed", "no engine of the group runs here")
        del group
        taken = self._taken_by_agent(engine.key)
        if taken is None:
            taken = self.folder / "captures" / command.id.replace("/", "_") / "evidence"
            captured = Capture(engine, taken, self.clock, CAPTURE_BUDGET_S, lambda: not self.stop.is_set()).run()
            if not taken.is_dir():
                return self._ack(command, "failed", captured.why_incomplete)
        data = msgspec.json.encode(load(taken).observations[-SHIPPED_MAX:])
        if len(data) > BLOB_BYTES_MAX:
            return self._ack(command, "failed", f"the evidence is too large: {len(data)} bytes")
        try:
            digest = self.bus.put(data)
        except BusError as error:
            return self._ack(command, "failed", str(error))
        return Ack(id=command.id, host=self.host, outcome="done", evidence=digest)

    def _taken_by_agent(self, key: str) -> Path | None:
        until_s = self.clock.now().mono_s + AGENT_CAPTURE_S
        while (taken := self.judged(key)) is None and self.taking(key) and self.clock.now().mono_s < until_s:
            if self.stop.wait(POLL_S):
                break
        return taken

    def _probe(self, command: Command, group: Group) -> Ack:
        url = self._url(command.group, group)
        token = None if url is None else any(tokens.generates(url, PROBE_S / self.time_scale) for _ in range(PROBES))
        return self._ack(command, "done", checks={"token": token})

    def _stop(self, command: Command, group: Group) -> Ack:
        owner, engine = self._owners.get(command.group), self.engine(command.group)
        if owner is None:
            return self._ack(command, "refused", "no supervisor is configured for the group on this host")
        url = self._url(command.group, group)
        stopped = Stop(
            owner=owner,
            incarnation=command.incarnation,
            processes=() if engine is None else everything_below(engine),
            ports=() if url is None else (urlsplit(url).port or 80,),
            term_s=group.term_s,
            verify_s=group.verify_s,
            now=lambda: self.clock.now().mono_s,
            wait=self.stop.wait,
        ).run()
        if stopped.verified:
            return self._ack(command, "done", checks=stopped.checks)
        return self._ack(command, "unverified", stopped.why, checks=stopped.checks)

    def _start(self, command: Command, group: Group) -> Ack:
        del group
        owner = self._owners.get(command.group)
        if owner is None:
            return self._ack(command, "refused", "no supervisor is configured for the group on this host")
        within_s = float(command.args.get("within_s", "1800"))
        ran = owner.start(command.id, command.args.get("mode", ""), within_s)
        if not ran.ok:
            said = ran.stderr.decode(errors="replace").strip().rpartition("\n")[2][:200]
            return self._ack(command, "failed", ran.why or f"the start ended with status {ran.status}: {said}")
        until_s = self.clock.now().mono_s + within_s
        while (
            not (running := self.running(command.group))
            and self.clock.now().mono_s < until_s
            and not self.stop.is_set()
        ):
            self.stop.wait(POLL_S)
        if not running:
            return self._ack(command, "failed", f"no engine was seen within {within_s:g} s of its start")
        return Ack(id=command.id, host=self.host, outcome="done", incarnation=running)

    def _ready(self, command: Command, group: Group) -> Ack:
        until_s = self.clock.now().mono_s + float(command.args.get("within_s", "1800"))
        while self.clock.now().mono_s < until_s and not self.stop.is_set():
            engine = self.engine(command.group)
            if engine is None:
                return self._ack(command, "failed", "the engine ended before it generated a token")
            url = self._url(command.group, group)
            if url is None:
                return self._ack(command, "done", "this host serves no API", checks={"token": None})
            if tokens.generates(url, PROBE_S):
                return self._ack(command, "done", checks={"token": True})
            self.stop.wait(POLL_S)
        return self._ack(command, "failed", "no token in time")

    def _store_check(self, command: Command, group: Group) -> Ack:
        why = "no row store is configured" if group.store is None else stores.fits(group.store, command.args["mode"])
        return self._ack(command, "failed" if why else "done", why)

    def _store_set(self, command: Command, group: Group) -> Ack:
        within_s = float(command.args.get("within_s", "600"))
        mode = command.args["mode"]
        why = "no row store is configured" if group.store is None else stores.set_mode(group.store, mode, within_s)
        return self._ack(command, "failed" if why else "done", why)

    def _unblock(self, command: Command, group: Group) -> Ack:
        why = "no row store is configured" if group.store is None else stores.unblock(group.store, PROBE_S)
        return self._ack(command, "failed" if why else "done", why)

    def _url(self, name: str, group: Group) -> str | None:
        if group.url:
            return group.url
        engine = self.engine(name)
        if engine is not None and engine.url is not None:
            return engine.url
        return None if group.port is None else f"http://127.0.0.1:{group.port}"

    def _ack(
        self, command: Command, outcome: AckOutcome, why: str = "", checks: Mapping[str, bool | None] | None = None
    ) -> Ack:
        return Ack(id=command.id, host=self.host, outcome=outcome, why=why, checks=checks or {})


def matching(group: Group, engines: Iterable[Engine]) -> tuple[Engine, ...]:
    """The engines that a group may mean; more than one is a group that is configured too loosely."""
    return tuple(
        engine
        for engine in engines
        if (group.adapter is None or engine.adapter == group.adapter)
        and (group.port is None or (engine.url is not None and urlsplit(engine.url).port == group.port))
    )


def everything_below(engine: Engine) -> tuple[ProcessId, ...]:
    """Every process of an engine, its unnamed children included, by identity."""
    pids = {pid for root in engine.roots if procfs.still_same(root) for pid in procfs.tree(root.pid)}
    found = {identity[0] for pid in pids if (identity := procfs.identity(pid)) is not None}
    return tuple(sorted(found | {process.id for process in engine.processes}))
