"""The drill of a hanging row-store read on the co-packaged engine, watched by the agent as it is installed.

Two ranks serve streaming clients from a `legacy` row store; reads of rank 1 stop coming back. The agent has no
configuration besides its state folder (and the time scale): it must have evidence of every rank before the engine's own
watchdog kills, and name the rank.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from sentinel.model.effect import Judged, WriteBundle
from sentinel.model.engine import Engine
from sentinel.plumbing.clock import Clock
from sentinel.plumbing.subprocesses import run_bounded
from sentinel.testing.drill import BUNDLE_S, Outcome, outcome_of
from sentinel.testing.packaged.engine import CPU, WATCHDOG_S, PackagedEngine
from sentinel.testing.packaged.watching import Watch, timing, wait_for
from sentinel.testing.scenarios import Scenario, nothing

WARM_S, VERDICT_S, REPORT_S = 120.0, 150.0, 60.0
POLL_S = 0.1


SCENARIO = Scenario(
    name="hostcallback",
    about="reads of rank 1's row store hang in the packaged engine (needs `make engine`)",
    inject=nothing,
    classes=("hang.host_callback",),
    culprits=(1,),
    ranks=2,
    watch_s=VERDICT_S,
    watchdog_s=WATCHDOG_S,
)


@dataclass(slots=True)
class HostCallbackDrill:
    """Run once. Raises RuntimeError when the engine does not come up."""

    clock: Clock
    folder: Path
    time_scale: float = 1.0
    device: str = CPU

    def run(self) -> Outcome:
        """Launch, load, watch, stall, wait for the verdict and its bundle."""
        engine = PackagedEngine(self.folder / "e", time_scale=self.time_scale, device=self.device)
        sections = {"timing": found} if (found := timing(self.time_scale)) else {}
        watch = Watch(self.folder / "agent", sections, engine.environ(), engine.name)
        with engine.running(), watch.running(), engine.clients() as met:
            seen = engine.seen()
            if seen is None:
                raise RuntimeError("the packaged engine runs and is not discovered; run `sentinel doctor`")
            self._warm_up(watch, seen, met)
            fault_s = self.clock.now().mono_s
            engine.stall_reads()
            wait_for(self.clock, VERDICT_S, lambda: self._is_judged(watch, seen), POLL_S)
            wait_for(self.clock, BUNDLE_S, lambda: watch.bundle(seen.root.pid) is not None, POLL_S)
            bundle = watch.bundle(seen.root.pid)
        events = [(round(at_s - fault_s, 3), effect) for at_s, effect in watch.effects() if effect.engine == seen.key]
        outcome = outcome_of(SCENARIO, self.time_scale, events, "" if bundle is None else str(bundle))
        return self._reported(msgspec.structs.replace(outcome, folder=str(self.folder)))

    def _warm_up(self, watch: Watch, seen: Engine, met: Path) -> None:
        """Until tokens arrive at clients and the agent knows the engine's pace."""

        def warm() -> bool:
            return watch.is_at_work(seen.root.pid, self.clock) and " token" in met.read_text()

        if not wait_for(self.clock, WARM_S, warm, POLL_S):
            raise RuntimeError(f"the agent did not see the engine at work: {watch.said}")

    def _is_judged(self, watch: Watch, seen: Engine) -> bool:
        kinds = {type(effect) for _, effect in watch.effects() if effect.engine == seen.key}
        return {WriteBundle, Judged} <= kinds

    def _reported(self, outcome: Outcome) -> Outcome:
        """With the HTML report of the bundle; one that cannot be written is a complaint."""
        if not outcome.bundle:
            return outcome
        page = self.folder / "report.html"
        argv = (sys.executable, "-m", "sentinel", "bundle", "report", outcome.bundle, "--html", str(page))
        ran = run_bounded(argv, deadline_s=REPORT_S)
        if ran.ok:
            return msgspec.structs.replace(outcome, report=str(page))
        why = f"no report: {ran.why or ran.said_last}"
        return msgspec.structs.replace(outcome, complaints=(*outcome.complaints, why))
