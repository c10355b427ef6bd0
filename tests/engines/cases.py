"""One fault in a real engine under the real agent: what is done, what has to be said, and what was measured."""

import json
import re
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.engines.engine import Kind, RealEngine, warm
from tests.engines.load import Load
from tests.engines.processes import now_s, signal_one, wait_until
from tests.engines.watcher import Watcher

Act = Callable[[RealEngine], None]
VERDICT_S = 150.0
RECOVERY_S = 90.0
CLOSED_S = 60.0

NOTICES = {
    "vllm": re.compile(
        r"RPC call to \w+ timed out|died unexpectedly|EngineDeadError|EngineCore (?:died|encountered)|"
        r"engine core exited|Shutting down"
    ),
    "sglang": re.compile(
        r"Scheduler watchdog timeout|Health check failed|crashed with exit code|SIGQUIT|kill_process_tree"
    ),
}
"""Words with which an engine shows that it has noticed by itself."""


def _leave(engine: RealEngine) -> None:
    del engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """`process`: title of the one that has to be named by its pid.

    `idle`: it strikes while nothing is asked, and requests come afterwards. `undo` None: the engine is lost.
    """

    name: str
    inject: Act
    kinds: tuple[str, ...]
    culprits: tuple[int, ...]
    process: str = ""
    undo: Act | None = _leave
    idle: bool = False


@dataclass(slots=True, kw_only=True)
class Measured:
    """Seconds after the fault, or after the first request when it struck an idle engine. None: it did not happen.

    `before`: verdicts that were given before the last one.
    """

    engine: str
    fault: str
    suspected_s: float | None = None
    captured_s: float | None = None
    judged_s: float | None = None
    verdict: str | None = None
    before: list[str] = field(default_factory=list)
    confidence: str | None = None
    culprits: list[int] = field(default_factory=list)
    named: bool = True
    noticed_s: float | None = None
    noticed: str = ""
    resumed: bool = False


def signal_to(name: str, number: signal.Signals) -> Act:
    """Send a signal to the process whose title begins so; to the root when the name is empty."""

    def act(engine: RealEngine) -> None:
        signal_one(engine.pid_of(name) if name else engine.pid, number)

    return act


def fault_in(fault: str, name: str, content: str = "") -> Act:
    """Ask for a fault inside the process whose title begins so."""

    def act(engine: RealEngine) -> None:
        engine.fault(fault, engine.pid_of(name), content)

    return act


def release_pipe(engine: RealEngine) -> None:
    """Let the blocked reader go on."""
    engine.release_pipe()


@dataclass(slots=True)
class Ward:
    """Engines of one kind and size, one at a time; a lost one is replaced by the next test that needs one."""

    kind: Kind
    ranks: int
    folder: Path
    arguments: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    _engine: RealEngine | None = None
    _count: int = 0

    @property
    def name(self) -> str:
        """For example `vllm-2`."""
        return f"{self.kind}-{self.ranks}"

    def engine(self) -> RealEngine:
        """A healthy, warm engine."""
        if self._engine is None or not self._engine.alive():
            self.discard()
            self._engine = self.fresh()
            warm(self._engine)
        return self._engine

    def fresh(self) -> RealEngine:
        """A new engine that has served nothing yet; it belongs to the caller."""
        self._count += 1
        folder = self.folder / f"{self.name}-{self._count}"
        folder.mkdir(parents=True)
        engine = RealEngine(self.kind, self.ranks, folder, self.arguments, self.settings)
        try:
            return engine.start()
        except BaseException:
            engine.kill()
            raise

    def discard(self) -> None:
        """End the present engine, whatever state it is in."""
        if self._engine is not None:
            self._engine.kill()
            self._engine = None


def strike(ward: Ward, fault: Fault) -> Measured:
    """Watch a healthy engine, inject the fault, wait for the agent's verdict, undo the fault, measure."""
    engine = ward.engine()
    watcher = Watcher(ward.folder / f"{ward.name}-{fault.name}", {engine.pid}).start()
    load = Load(engine.port)
    undone = False
    try:
        if not fault.idle:
            load.start()
        watcher.learn()
        named = engine.pid_of(fault.process) if fault.process else None
        offset, fault_s = engine.log.stat().st_size, now_s()
        fault.inject(engine)
        if fault.idle:
            watcher.learn(signs=watcher.signs() + 5)
            assert watcher.said() == [], "nothing was asked of the engine, and the agent complains"
            load.start()
            fault_s = now_s()
        wait_until(lambda: _judged(watcher, fault, fault_s), VERDICT_S, lambda: f"the verdict, not {watcher.said()}")
        measured = _measured(ward, fault, watcher, fault_s, engine.text_since(offset))
        measured.named = named is None or named in watcher.verdicts(fault_s)[-1].fields["culprit_pids"]
        if fault.undo is not None:
            measured.resumed = undone = _undo(fault.undo, engine, load, watcher)
        return measured
    finally:
        load.stop()
        watcher.stop()
        if not (undone and _quiet_again(engine)):
            ward.discard()


def _judged(watcher: Watcher, fault: Fault, since_s: float) -> bool:
    """Whether the evidence is kept and the newest verdict is of a right class; a first guess may be another."""
    given = watcher.verdicts(since_s)
    kept = watcher.first("incident_kept", since_s) is not None
    return kept and bool(given) and given[-1].fields["kind"] in fault.kinds


def _undo(undo: Act, engine: RealEngine, load: Load, watcher: Watcher) -> bool:
    undo(engine)
    undone_s = now_s()
    wait_until(lambda: load.last_token_s > undone_s, RECOVERY_S, "tokens come again", engine.log)
    wait_until(lambda: watcher.first("incident_closed", undone_s), CLOSED_S, "the incident ends")
    return True


def _quiet_again(engine: RealEngine) -> bool:
    """Whether the engine still answers, so that the next test can have it."""
    try:
        warm(engine)
    except (OSError, AssertionError):
        return False
    return engine.alive()


def _measured(ward: Ward, fault: Fault, watcher: Watcher, since_s: float, engine_said: str) -> Measured:
    def after(event: str) -> float | None:
        found = watcher.first(event, since_s)
        return None if found is None else round(found.at_s - since_s, 1)

    measured = Measured(engine=ward.name, fault=fault.name)
    measured.suspected_s, measured.captured_s = after("stall_suspected"), after("incident_kept")
    *guesses, last = watcher.verdicts(since_s)
    measured.judged_s, measured.before = round(last.at_s - since_s, 1), [guess.fields["kind"] for guess in guesses]
    verdict = last.fields
    measured.verdict, measured.confidence = verdict["kind"], verdict["confidence"]
    measured.culprits = verdict["culprits"]
    noticed = NOTICES[ward.kind].search(engine_said)
    if noticed is not None:
        measured.noticed, measured.noticed_s = noticed[0], round(now_s() - since_s, 1)
    return measured


def keep(folder: Path, measured: Measured) -> None:
    """Append a measurement to the table of this run."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "measured.jsonl").open("a") as table:
        table.write(json.dumps(asdict(measured)) + "\n")
