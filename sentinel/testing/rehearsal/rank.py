"""One rank: a decode loop that meets its peers in a collective, and a watchdog that ends a stuck engine."""

import contextlib
import os
import signal
import subprocess
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from sentinel.testing.rehearsal.collective import Group
from sentinel.testing.rehearsal.faults import FAULTS
from sentinel.testing.rehearsal.prints import NcclTrace, decode, prefill, say
from sentinel.testing.rehearsal.shared import Shared

IDLE_POLL_S = 0.02
COLLECTIVES_PER_STEP = 2


@dataclass(slots=True)
class Settings:
    """How the engine behaves: prompt tokens a second, seconds a decode step, decode steps a log line."""

    folder: Path
    rank: int
    ranks: int
    watchdog_s: float
    step_s: float
    prefill_tps: float
    log_interval: int


def serve(settings: Settings) -> None:
    """Run until killed or until the launcher ends."""
    shared = Shared(settings.folder / "shared")
    tag = f"TP{settings.rank}"
    say(tag, "Init torch distributed begin.")
    trace = NcclTrace(settings.folder, settings.rank, settings.ranks)
    group = Group(settings.folder, settings.rank, settings.ranks)
    trace.init()
    say(tag, "Init torch distributed ends. elapsed=0.10 s, mem usage=0.10 GB")
    say(tag, "Load weight begin. avail mem=100.00 GB")
    say(tag, "Load weight end. elapsed=0.10 s, type=Rehearsal, avail mem=90.00 GB, mem usage=10.00 GB.")
    loop = Loop(settings, shared, group, trace)
    threading.Thread(target=loop.watchdog, name="watchdog", daemon=True).start()
    if settings.rank == 0:
        shared.put("ready", 1)
        say("", "The server is fired up and ready to roll!")
    loop.run()


class Loop:
    """The scheduler loop. `forward_ct` counts steps; `busy` says whether a step is current."""

    def __init__(self, settings: Settings, shared: Shared, group: Group, trace: NcclTrace) -> None:
        self.settings, self.shared, self.group, self.trace = settings, shared, group, trace
        self.tag = f"TP{settings.rank}"
        self.forward_ct = 0
        self.busy = False
        self._fault = settings.folder / f"fault.{settings.rank}"
        self._slow = settings.folder / f"slow.{settings.rank}"
        self._lines_at = time.monotonic()
        self._prefill_tps = 0.0

    def run(self) -> None:
        """Step while requests run; wait for work otherwise."""
        try:
            while True:
                self.event_loop_normal()
        except ConnectionError as error:
            trace = traceback.format_exc().rpartition("ConnectionError")[0]
            place = "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547]"
            say(self.tag, f"Scheduler hit an exception: {trace}RuntimeError: {place} {error} [127.0.0.1]:40123\n")
            raise SystemExit(1) from error
        except RuntimeError:
            say(self.tag, f"Scheduler hit an exception: {traceback.format_exc()}")
            os.kill(os.getppid(), signal.SIGQUIT)
            raise SystemExit(1) from None

    def event_loop_normal(self) -> None:
        """One turn: rank 0 decides what is run and everybody learns it in the first collective."""
        plan = self._plan() if self.settings.rank == 0 else 0
        running, prefill_tokens = divmod(self.recv_requests(plan), 1 << 24)
        if running == 0:
            self.busy = False
            threading.Event().wait(IDLE_POLL_S)
            return
        self.busy = True
        if prefill_tokens:
            self.run_prefill(running, prefill_tokens)
        self.run_batch(running)

    def recv_requests(self, plan: int) -> int:
        """The request broadcast of the scheduler."""
        return self.group.all_reduce(plan)

    def run_batch(self, running: int) -> None:
        """One decode step: perhaps a fault, then the collectives of its layers."""
        self._meet_fault()
        threading.Event().wait(self.settings.step_s)
        for _ in range(COLLECTIVES_PER_STEP):
            self.trace.all_reduce(running * 4096)
            self.group.all_reduce(1)
        self.forward_ct += 1
        if self.settings.rank == 0:
            self._account(running)

    def run_prefill(self, running: int, tokens: int) -> None:
        """One long forward on every rank: real computing, no output for as long as it takes."""
        if self.settings.rank == 0:
            say(self.tag, prefill(1, tokens, running, self._prefill_tps))
            self.shared.put("prefill_tokens", 0)
        began = time.monotonic()
        end = began + tokens / self.settings.prefill_tps
        while time.monotonic() < end:
            self.forward_extend()
        self._prefill_tps = tokens / (time.monotonic() - began)
        self.shared.put("tokens", self.shared.get("tokens") + tokens)

    def forward_extend(self) -> int:
        """Some work for the CPU."""
        return sum(number * number for number in range(20_000))

    def _plan(self) -> int:
        paused = self.shared.get("paused")
        self.shared.put("resting", paused)
        if paused:
            return 0
        return (self.shared.get("running") << 24) + self.shared.get("prefill_tokens")

    def _account(self, running: int) -> None:
        self.shared.put("steps", self.forward_ct)
        self.shared.put("tokens", self.shared.get("tokens") + running)
        if self.forward_ct % self.settings.log_interval == 0:
            now = time.monotonic()
            rate = running * self.settings.log_interval / max(now - self._lines_at, 1e-6)
            self._lines_at = now
            say(self.tag, decode(running, self.shared.get("tokens"), rate))

    def _meet_fault(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            threading.Event().wait(float(self._slow.read_text() or 0.05))
        if self._fault.exists():
            name = self._fault.read_text().strip()
            self._fault.unlink()
            FAULTS[name](self.settings.folder)

    def watchdog(self) -> None:
        """Polls at half its time-out, like the engine it stands for, and then ends everything."""
        timeout_s = self.settings.watchdog_s
        if timeout_s <= 0:
            return
        seen, since = -1, time.monotonic()
        while True:
            if not self.busy or self.forward_ct != seen:
                seen, since = self.forward_ct, time.monotonic()
            elif time.monotonic() > since + timeout_s:
                break
            threading.Event().wait(timeout_s / 2)
        say(self.tag, f"Scheduler watchdog timeout (self.watchdog_timeout={timeout_s:g}, self.soft=False)")
        subprocess.run(["/bin/true"], check=False)
        os.kill(os.getppid(), signal.SIGQUIT)
