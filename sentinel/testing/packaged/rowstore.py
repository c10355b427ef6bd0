"""The row-store drill: reads of the packaged engine's row store hang under load, and Sentinel brings it back.

Two ranks on two network namespaces where this machine allows it, streaming clients, the agent and the coordinator as
`sentinel watch` in policy `auto`. Everything is real: the fault is in the store, the launcher stops and starts, the
proof is a token. What happened is read from the disks of those who did it.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sentinel.agent.procfs import still_same
from sentinel.model.effect import AnyEffect, Judged, WriteBundle
from sentinel.model.engine import Engine
from sentinel.model.group import Ack
from sentinel.model.verdict import Verdict
from sentinel.plumbing.clock import Clock
from sentinel.testing.drill import words
from sentinel.testing.packaged.engine import WATCHDOG_S, PackagedEngine
from sentinel.testing.packaged.namespaces import may_be_made, namespaces
from sentinel.testing.packaged.scene import GROUP, Scene, tokens_after
from sentinel.testing.packaged.variants import PLAIN, Variant

NAME = "rowstore"
ABOUT = "reads of the packaged engine's row store hang; it is captured, judged, stopped and started in RAM mode"
WARM_S, END_S, TOKEN_S, BUNDLE_S = 120.0, 420.0, 60.0, 120.0
TOOLS_S = 120.0
"""What launching and stopping may take on a slow machine, whatever the clocks are divided by."""
CALM_S = 20.0
KIND, CULPRITS = "hang.host_callback", (1,)
ADDED_MAX_S = 20.0
"""What Sentinel may add between verdict and verified stop, at scale 1."""


class RowstoreOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the drill showed. `events`: seconds after the fault, who, words. Paths are empty for what there is not."""

    variant: str
    about: str
    time_scale: float
    layout: str
    events: tuple[tuple[float, str, str], ...]
    complaints: tuple[str, ...]
    folder: str
    verdict: Verdict | None = None
    captured_s: float | None = None
    kill_due_s: float = 0.0
    stop_after_verdict_s: float | None = None
    token_s: float | None = None
    relaunches: int = 0
    launches: int = 0
    mode: str = ""
    bundle: str = ""
    page: str = ""

    @property
    def passed(self) -> bool:
        """Nothing to complain about."""
        return not self.complaints


@dataclass(slots=True)
class RowstoreDrill:
    """Run once. Raises RuntimeError when engine or watchers do not come up."""

    clock: Clock
    folder: Path
    time_scale: float = 1.0
    variant: Variant = PLAIN
    _scene: Scene = field(init=False)
    _first: Engine = field(init=False)
    _fault_s: float = 0.0

    def run(self) -> RowstoreOutcome:
        """Launch, load, watch, stall, and look until the incident has ended as it should or time is up."""
        with contextlib.ExitStack() as stack:
            spaces = stack.enter_context(namespaces(str(os.getpid()))) if may_be_made() else None
            engine = PackagedEngine(self.folder / "e", spaces, self.time_scale)
            stack.enter_context(engine.running())
            self._scene = scene = Scene(self.variant, engine, self.clock, self.folder, self.time_scale)
            stack.enter_context(scene.watched())
            met = stack.enter_context(engine.clients())
            self._first = self._warmed_up(met)
            self._prepare(met, stack)
            self._fault_s = scene.note("reads of rank 1's row store hang from now on")
            engine.stall_reads(self.variant.stall_count)
            self._watch(met)
            return self._outcome(met)

    def _warmed_up(self, met: Path, after_s: float = 0.0) -> Engine:
        """Wait until clients have tokens and the watchers know the engine."""
        scene = self._scene
        found: list[Engine] = []

        def warm() -> bool:
            seen = scene.engine.seen()
            found[:] = [] if seen is None else [seen]
            return seen is not None and tokens_after(met, after_s) is not None and scene.warm(seen)

        scene.until(WARM_S, warm, "the watchers did not see the engine at work")
        return found[0]

    def _prepare(self, met: Path, stack: contextlib.ExitStack) -> None:
        """Put the variant's obstacle in place."""
        scene = self._scene
        if self.variant.obstacle == "paused":
            scene.order("pause", "--for", "1h")
        elif self.variant.obstacle == "port_taken":
            stack.enter_context(scene.squatter())
        elif self.variant.obstacle == "ordered_restart":
            began_s = scene.note("a person restarts the engine")
            scene.until(TOOLS_S, self._ordered, "no restart could be ordered")
            scene.until(END_S / self.time_scale + TOOLS_S, self._is_closed, "the ordered restart did not end")
            scene.told.clear()
            scene.acks.clear()
            self._first = self._warmed_up(met, began_s)

    def _ordered(self) -> bool:
        try:
            self._scene.order("restart", GROUP)
        except RuntimeError:
            return False
        return True

    def _is_closed(self) -> bool:
        return any(told.what == "closed" for _, told in self._scene.told)

    def _watch(self, met: Path) -> None:
        scene, variant = self._scene, self.variant
        within_s = END_S / self.time_scale + TOOLS_S
        if variant.victim and scene.until(within_s, self._is_in_phase):
            victim = scene.desk if variant.victim == "coordinator" else scene.agent
            assert victim is not None
            scene.note(f"SIGKILL to the {variant.victim}")
            victim.kill()
            victim.start()
            scene.note(f"the {variant.victim} is started again")
        scene.until(within_s, self._has_ended)
        if variant.ends == "closed":
            scene.until(TOKEN_S, lambda: tokens_after(met, self._since_s()) is not None)
        else:
            scene.until(CALM_S / self.time_scale, lambda: False)
        if variant.keeps_evidence:
            scene.until(BUNDLE_S, lambda: scene.agent.bundle(self._first.root.pid) is not None)

    def _since_s(self) -> float:
        """Tokens count from the stop on, or from the fault where there is none."""
        return max([self._fault_s, *(at_s for at_s, _ in self._stops())])

    def _is_in_phase(self) -> bool:
        scene = self._scene
        match self.variant.phase:
            case "capture":
                return any(path.name.startswith("pass") for path in scene.agent.evidence(self._first.root.pid))
            case "stop":
                return scene.command() == "stop"
            case "start":
                return scene.command() == "start" and bool(scene.engine.pids())
            case _:
                return any(told.what == "carried_out" for _, told in scene.told)

    def _has_ended(self) -> bool:
        scene = self._scene
        if self.variant.ends == "refused":
            against = scene.state().refusals
            return len(against) == 1 and against[0].startswith(f"{self.variant.guard}:")
        ends = [told.what for _, told in scene.told if told.what in ("closed", "page")]
        return "page" in ends or len(ends) >= self.variant.closings

    def _stops(self) -> list[tuple[float, Ack]]:
        return [(at_s, ack) for at_s, ack in self._scene.acks if "/stop/" in ack.id]

    def _effects(self) -> list[tuple[float, AnyEffect]]:
        return [one for one in self._scene.agent.effects() if one[1].engine == self._first.key]

    def _outcome(self, met: Path) -> RowstoreOutcome:
        scene, effects = self._scene, self._effects()
        told_verdicts = [(at_s, told.verdict) for at_s, told in scene.told if told.verdict is not None]
        judged = [(at_s, effect.verdict) for at_s, effect in effects if isinstance(effect, Judged)] or told_verdicts
        kept_s = next((at_s for at_s, effect in effects if isinstance(effect, WriteBundle)), None)
        stops, relaunches = self._stops(), sum(scene.state().relaunches.values())
        bundle, token_s = scene.agent.bundle(self._first.root.pid), tokens_after(met, self._since_s())
        both = scene.engine.spaces
        outcome = RowstoreOutcome(
            variant=self.variant.name,
            about=self.variant.about,
            time_scale=self.time_scale,
            layout="two network namespaces, one rank each" if both else "one node, two ranks (needs root and `ip`)",
            events=tuple(self._events(token_s)),
            complaints=(),
            folder=str(self.folder),
            verdict=judged[-1][1] if judged else None,
            captured_s=self._after_fault(kept_s),
            kill_due_s=WATCHDOG_S / self.time_scale,
            stop_after_verdict_s=round(stops[0][0] - judged[0][0], 3) if stops and judged else None,
            token_s=self._after_fault(token_s),
            relaunches=relaunches,
            launches=scene.launches(),
            mode=scene.mode(),
            bundle="" if bundle is None else str(bundle),
        )
        return msgspec.structs.replace(outcome, complaints=tuple(self._complaints(outcome)))

    def _after_fault(self, at_s: float | None) -> float | None:
        return None if at_s is None else round(at_s - self._fault_s, 3)

    def _events(self, token_s: float | None) -> list[tuple[float, str, str]]:
        scene = self._scene
        events = [(at_s, "drill", said) for at_s, said in scene.done]
        events += [(at_s, "agent", words(effect)) for at_s, effect in self._effects()]
        events += [(at_s, "coordinator", f"{told.what}: {told.words}") for at_s, told in scene.told]
        events += [(at_s, "host", _ack_words(ack)) for at_s, ack in scene.acks]
        if token_s is not None:
            events.append((token_s, "clients", "the first token again"))
        rows = [(round(at_s - self._fault_s, 3), who, said) for at_s, who, said in events]
        return sorted(rows, key=lambda row: row[0])

    def _complaints(self, outcome: RowstoreOutcome) -> Iterator[str]:
        scene, variant, verdict = self._scene, self.variant, outcome.verdict
        if verdict is None:
            yield "no verdict"
        elif (verdict.kind, verdict.culprits.ranks) != (KIND, CULPRITS):
            yield f"judged {verdict.kind} of {list(verdict.culprits.ranks)}, wanted {KIND} of {list(CULPRITS)}"
        stops = self._stops()
        if variant.keeps_evidence:
            yield from self._evidence(outcome, stops)
        if tuple(ack.outcome for _, ack in stops) != variant.stops:
            yield f"wanted stops {list(variant.stops)}, got {[(ack.outcome, ack.why) for _, ack in stops]}"
        if still_same(self._first.root) == variant.acts:
            yield "the hanging engine still runs" if variant.acts else "the engine was stopped"
        ends = {"closed": "worked", "page": "", "refused": ""}[variant.ends]
        said = [told.words for _, told in scene.told if told.what == variant.ends]
        if not any(ends in each for each in said) or not any(variant.says in told.words for _, told in scene.told):
            yield f"it did not end with `{variant.ends}`: " + "; ".join(told.words for _, told in scene.told[-3:])
        if (outcome.launches, outcome.relaunches) != (variant.launches, variant.relaunches):
            yield f"launched {outcome.launches} times and counted {outcome.relaunches} relaunches"
        if variant.ends != "page" and outcome.mode != variant.mode:
            yield f"the row store is in mode {outcome.mode or 'unknown'}, wanted {variant.mode}"
        if variant.ends == "closed" and outcome.token_s is None:
            yield "no token came again"
        if variant.victim and not any("SIGKILL" in done for _, done in scene.done):
            yield f"the {variant.victim} was never seen in phase {variant.phase}, so it was not killed"
        added_s = outcome.stop_after_verdict_s
        if variant is PLAIN and self.time_scale == 1.0 and added_s is not None and added_s > ADDED_MAX_S:
            yield f"{added_s:.1f} s from the verdict to the verified stop, {ADDED_MAX_S:g} s are allowed"

    def _evidence(self, outcome: RowstoreOutcome, stops: list[tuple[float, Ack]]) -> Iterator[str]:
        if outcome.captured_s is None or not outcome.bundle:
            yield "no evidence of the incident was kept" if outcome.captured_s is None else "no bundle was made of it"
            return
        if outcome.captured_s > outcome.kill_due_s:
            yield f"captured {outcome.captured_s - outcome.kill_due_s:.1f} s after the engine's own kill was due"
        if stops and self._fault_s + outcome.captured_s > stops[0][0] - stops[0][1].took_s:
            yield "the engine was stopped before its evidence was kept"


def _ack_words(ack: Ack) -> str:
    checks = ", ".join(
        f"{name} {'yes' if well else 'no' if well is False else 'unknown'}" for name, well in ack.checks.items()
    )
    took = f"after {ack.took_s:.1f} s" if ack.took_s else ""
    return " ".join(filter(None, [f"{ack.id.split('/')[-2]} {ack.outcome}", took, checks and f"({checks})", ack.why]))
