"""States of an engine's processes: one small read each, told when a state changes and now and then.

A stopped, zombie or uninterruptible process is evidence by itself and needs no stack.
"""

import os
from collections.abc import Iterator

from sentinel.agent import procfs
from sentinel.agent.source import Said
from sentinel.model.engine import Engine
from sentinel.model.observation import Origin, ProcessRow, ProcessTable
from sentinel.model.stamp import Stamp

TELL_EVERY_S = 30.0


class Processes:
    """Watches the processes of one engine."""

    every_s = 1.0

    def __init__(self, engine: Engine) -> None:
        self.name = f"processes:{engine.key}"
        self.engine = engine
        self._states: dict[int, str] = {}
        self._stopped: set[int] = set()
        self._cpu: dict[int, tuple[float, int]] = {}
        self._told_s = 0.0
        self._tick_hz = os.sysconf("SC_CLK_TCK")

    def poll(self, now: Stamp) -> Iterator[Said]:
        """A table when a state letter changed since the last one."""
        rows, states = [], {}
        for process in self.engine.processes:
            fields = procfs.stat_fields(process.id.pid)
            if fields is None or len(fields) < 20 or int(fields[19]) != process.id.started_ticks:
                continue
            state = self._state(process.id.pid, fields[0])
            # Running and sleeping alternate all the time; only what is neither is news.
            states[process.id.pid] = state if state in "TtDZ" else "-"
            rows.append(
                ProcessRow(
                    pid=process.id.pid,
                    ppid=int(fields[1]),
                    state=state,
                    command=process.title,
                    cpu_percent=self._cpu_percent(process.id.pid, int(fields[11]) + int(fields[12]), now),
                )
            )
        if states != self._states or now.mono_s - self._told_s >= TELL_EVERY_S:
            self._states, self._told_s = states, now.mono_s
            table = ProcessTable(origin=Origin("proc/stat"), at_s=now.wall_s, rows=tuple(rows), complete=False)
            yield Said(self.engine.key, table)

    def counts(self) -> dict[str, int]:
        """Processes by state as last seen: `D`, `T`, `Z`, and `ok` for all that run or sleep."""
        found = {"ok": 0, "D": 0, "T": 0, "Z": 0}
        for state in self._states.values():
            found["ok" if state == "-" else state.upper()] += 1
        return found

    def close(self) -> None:
        """Nothing is held."""

    def _state(self, pid: int, state: str) -> str:
        """The state letter; a stop by a stack tool is none of the engine's.

        They attach with a stop signal, so a process may show a plain stop for a moment as they come and go.
        """
        if state not in "Tt":
            self._stopped.discard(pid)
            return state
        tracer = procfs.tracer_of(pid)
        found = None if tracer is None else procfs.identity(tracer)
        if (found is not None and found[1] == os.getpid()) or procfs.held_by_stack_tool(pid):
            return "S"
        lasting = pid in self._stopped
        self._stopped.add(pid)
        return state if lasting else "S"

    def _cpu_percent(self, pid: int, ticks: int, now: Stamp) -> float | None:
        before = self._cpu.get(pid)
        self._cpu[pid] = (now.mono_s, ticks)
        if before is None or now.mono_s <= before[0]:
            return None
        return round(100.0 * (ticks - before[1]) / self._tick_hz / (now.mono_s - before[0]), 1)
