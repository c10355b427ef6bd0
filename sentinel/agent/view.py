"""The live view of `sentinel watch --live`: the status record, drawn anew every second, and the newest events."""

import threading
from collections import deque

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from sentinel.agent.loop import AgentLoop
from sentinel.agent.report import words
from sentinel.agent.status import EngineStatus, Status
from sentinel.model.effect import AnyEffect, Cleared, Recovered
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import local_text

EVENTS_SHOWN = 12
REDRAW_S = 1.0
STYLES = {"watching": "green", "suspected": "yellow", "capturing": "yellow", "judged": "red"}


def run_with_view(loop: AgentLoop, console: Console | None = None) -> None:
    """Run the agent until it is stopped, and draw what it sees."""
    events: deque[tuple[Stamp, AnyEffect]] = deque(maxlen=EVENTS_SHOWN)
    loop.listeners.append(lambda at, effect: events.append((at, effect)))
    agent = threading.Thread(target=loop.run, name="agent", daemon=True)
    with Live(Text("looking for engines"), console=console, auto_refresh=False, screen=False) as live:
        agent.start()
        while agent.is_alive():
            if loop.latest is not None:
                live.update(drawn(loop.latest, tuple(events)), refresh=True)
            loop.stop.wait(REDRAW_S)
            if loop.stop.is_set():
                agent.join(timeout=10.0)
                break


def drawn(status: Status, events: tuple[tuple[Stamp, AnyEffect], ...]) -> RenderableType:
    """Engines, events and what is wrong with the agent itself."""
    parts: list[RenderableType] = [_engines(status)]
    parts += [_incident(engine) for engine in status.engines if engine.verdict is not None]
    parts.append(_events(events))
    down = [source for source in status.sources if source.quarantined_for_s or source.lost_bytes]
    troubles = [*status.troubles, *(f"{source.name}: {source.lost_bytes} bytes lost {source.why}" for source in down)]
    missing = sorted({f"{check.what}: {check.fix}" for check in status.readiness if not check.ok and check.fix})
    if troubles or missing:
        parts.append(Panel("\n".join([*troubles, *missing]), title="cannot be seen", border_style="yellow"))
    return Group(*parts)


def _engines(status: Status) -> Table:
    table = Table(title=f"{len(status.engines)} engines, {status.near_misses} near misses", title_justify="left")
    for name in ("engine", "ranks", "does", "state", "silence", "limit", "running", "waiting", "ends itself after"):
        table.add_column(name)
    for engine in status.engines:
        ranks = sum(process.role == "rank" for process in engine.processes)
        deadline = "never" if engine.deadline is None else f"{engine.deadline.earliest_s:.0f} s"
        table.add_row(
            engine.key,
            str(ranks),
            engine.serving,
            Text(engine.phase, style=STYLES.get(engine.phase, "")),
            "?" if engine.silence_s is None else f"{engine.silence_s:.1f} s",
            "?" if engine.limit_s is None else f"{engine.limit_s:.1f} s",
            "?" if engine.running is None else str(engine.running),
            "?" if engine.waiting is None else str(engine.waiting),
            deadline,
        )
    return table


def _incident(engine: EngineStatus) -> Panel:
    assert engine.verdict is not None
    verdict = engine.verdict
    advice = [f"do: {action.action}: {action.why}" for action in verdict.actions]
    advice += [f"do not: {action.action}: {action.why}" for action in verdict.do_not]
    title = f"{engine.incident}: {verdict.kind} ({verdict.confidence})"
    return Panel("\n".join([verdict.summary, *advice]), title=title, border_style="red" if verdict.stalled else "green")


def _events(events: tuple[tuple[Stamp, AnyEffect], ...]) -> Panel:
    lines = Text()
    for at, effect in events:
        style = "green" if isinstance(effect, Cleared | Recovered) else ""
        lines.append(f"{local_text(at.wall_s, '%H:%M:%S')}  {words(effect)}\n", style=style)
    return Panel(lines if events else Text("nothing has happened"), title="events")
