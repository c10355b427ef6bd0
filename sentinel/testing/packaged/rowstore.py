"""The row-store drill: reads of the packaged engine's row store hang under load, and Sentinel brings it back.

Two ranks on two network namespaces where this machine allows it, streaming clients, the agent and the coordinator as
`sentinel watch` in policy `auto`. Everything is real: the fault is in the store, the launcher stops and starts, the
proof is a token. What happened is read from the disks of those who did it.
"""

import contextlib
import os
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from sentinel.agent.procfs import still_same
from sentinel.model.effect import AnyEffect, Judged, WriteBundle
from sentinel.model.engine import Engine
from sentinel.model.group import Ack
from sentinel.plumbing.clock import Clock
from sentinel.testing.drill import words
from sentinel.testing.packaged.engine import CPU, WATCHDOG_S, PackagedEngine
from sentinel.testing.packaged.expectations import Seen, complaints
from sentinel.testing.packaged.namespaces import if_possible
from sentinel.testing.packaged.scene import GROUP, HOLD_S, SCAN_S, Scene, tokens_after
from sentinel.testing.packaged.variants import PLAIN, Variant
from sentinel.testing.restart_drill import added_s, checked

NAME = "rowstore"
ABOUT = "reads of the packaged engine's row store hang; it is captured, judged, stopped and started in RAM mode"
IN_NAMESPACES = "two network namespaces, one rank each"
ON_ONE_NODE = "one node with two ranks; namespaces need root and `ip`"
WARM_S, END_S, TOKEN_S, BUNDLE_S = 120.0, 420.0, 60.0, 120.0
TOOLS_S = 120.0
"""What launching and stopping may take on a slow machine, whatever the clocks are divided by."""
CALM_S = 20.0


class RowstoreOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What the drill showed. `events`: seconds after the fault, who, words. Paths are empty for what there is not."""

    variant: str
    about: str
    layout: str
    events: tuple[tuple[float, str, str], ...]
    complaints: tuple[str, ...]
    folder: str
    seen: Seen
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
    device: str = CPU
    _scene: Scene = field(init=False)
    _first: Engine = field(init=False)
    _fault_s: float = 0.0
    _killed: bool = False

    def run(self) -> RowstoreOutcome:
        """Launch, load, watch, stall, and look until the incident has ended as it should or time is up."""
        with contextlib.ExitStack() as stack:
            spaces = stack.enter_context(if_possible(str(os.getpid())))
            engine = PackagedEngine(self.folder / "e", spaces, self.time_scale, self.device)
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

        scene.until(WARM_S, warm, "the watchers did not see the engine at work", every_s=SCAN_S)
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
            scene.until(END_S / self.time_scale + TOOLS_S, self._is_over, "the ordered restart did not end")
            if (last := scene.told[-1][1]).what != "closed":
                raise RuntimeError(f"the ordered restart did not work: {last.words}")
            scene.told.clear()
            scene.acks.clear()
            self._first = self._warmed_up(met, began_s)

    def _ordered(self) -> bool:
        try:
            self._scene.order("restart", GROUP)
        except RuntimeError:
            return False
        return True

    def _is_over(self) -> bool:
        return any(told.what in ("closed", "page") for _, told in self._scene.told)

    def _watch(self, met: Path) -> None:
        scene, variant = self._scene, self.variant
        within_s = END_S / self.time_scale + TOOLS_S
        if variant.victim and scene.until(within_s, self._is_in_phase):
            victim = scene.coordinator if variant.victim == "coordinator" else scene.agent
            assert victim is not None
            scene.note(f"SIGKILL to the {variant.victim}")
            victim.kill()
            self._killed = True
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
        stops = self._stops()
        bundle, token_s = scene.agent.bundle(self._first.root.pid), tokens_after(met, self._since_s())
        held_s = self._fault_s + HOLD_S / self.time_scale
        seen = Seen(
            time_scale=self.time_scale,
            verdict=judged[-1][1] if judged else None,
            captured_s=self._after_fault(kept_s),
            kill_due_s=WATCHDOG_S / self.time_scale,
            bundle=bundle is not None,
            told=tuple(told for _, told in scene.told),
            stops=tuple(ack for _, ack in stops),
            stop_s=self._after_fault(stops[0][0] - stops[0][1].took_s) if stops else None,
            added_s=added_s(told_verdicts[-1][0], held_s, stops[0][0]) if stops and told_verdicts else None,
            token_s=self._after_fault(token_s),
            still_runs=still_same(self._first.root),
            killed=self._killed,
            launches=scene.launches(),
            relaunches=sum(scene.state().relaunches.values()),
            mode=scene.mode(),
        )
        both = scene.engine.spaces
        return RowstoreOutcome(
            variant=self.variant.name,
            about=self.variant.about,
            layout=(IN_NAMESPACES if both else ON_ONE_NODE) + ("" if self.device == CPU else f", on {self.device}"),
            events=tuple(self._events(token_s)),
            complaints=tuple(complaints(self.variant, seen)),
            folder=str(self.folder),
            bundle="" if bundle is None else str(bundle),
            seen=seen,
        )

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


def _ack_words(ack: Ack) -> str:
    took = f"after {ack.took_s:.1f} s" if ack.took_s else ""
    return " ".join(filter(None, [f"{ack.id.split('/')[-2]} {ack.outcome}", took, checked(ack), ack.why]))
