"""Runs the sources: each when it is due, measured, and put in quarantine when it fails.

The one place that catches any exception: a bug in one source must not blind all the others.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from sentinel.agent.source import Health, Said, Source
from sentinel.model.observation import Origin, Unavailable
from sentinel.model.stamp import Stamp

BACK_OFF_FIRST_S = 5.0
BACK_OFF_MAX_S = 300.0
SAID_PER_POLL_MAX = 20_000


@dataclass(slots=True)
class Gather:
    """`poll` yields what all due sources say. Sources may be added and removed while it runs."""

    sources: dict[str, Source] = field(default_factory=dict)
    health: dict[str, Health] = field(default_factory=dict)
    shed: int = 0

    def add(self, source: Source) -> None:
        """Ask this source from now on."""
        self.sources[source.name] = source
        self.health.setdefault(source.name, Health())

    def drop(self, name: str) -> None:
        """Close a source and forget it."""
        source = self.sources.pop(name, None)
        if source is not None:
            source.close()
        self.health.pop(name, None)

    def close(self) -> None:
        """Close all."""
        for name in list(self.sources):
            self.drop(name)

    def poll(self, now: Stamp) -> Iterator[Said]:
        """One round over the sources that are due."""
        for name, source in list(self.sources.items()):
            health = self.health[name]
            if now.mono_s >= max(health.due_s, health.down_until_s):
                health.due_s = now.mono_s + source.every_s
                yield from self._ask(source, health, now)

    def _ask(self, source: Source, health: Health, now: Stamp) -> Iterator[Said]:
        began = time.monotonic()
        count = 0
        try:
            for said in source.poll(now):
                count += 1
                if count > SAID_PER_POLL_MAX:
                    self.shed += 1
                    continue
                yield said
        except Exception as error:
            health.failures += 1
            health.why = f"{type(error).__name__}: {error}"
            health.back_off_s = min(max(2 * health.back_off_s, BACK_OFF_FIRST_S), BACK_OFF_MAX_S)
            health.down_until_s = now.mono_s + health.back_off_s
            yield Said(
                None, Unavailable(origin=Origin(source.name), at_s=now.wall_s, source=source.name, reason=health.why)
            )
        else:
            health.back_off_s = 0.0
            health.answered_s = now.wall_s
        health.polls += 1
        health.said += count
        health.seconds += time.monotonic() - began
