"""Asks an engine without a metrics page how many requests it has, only when its silence makes that matter.

A scheduler's log says nothing when the last request ends, so idleness and a hang look alike there. Where the answer
comes from the scheduler itself, no answer within the deadline is evidence.
"""

import http.client
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urlsplit

import msgspec

from sentinel.agent.ring import Ring
from sentinel.agent.source import Said
from sentinel.agent.sources.background import Background
from sentinel.engines.adapter import LoadQuestion
from sentinel.model.engine import Engine
from sentinel.model.observation import HealthProbe, Origin, Scrape
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import local_text

TIMEOUT_S = 2.0
EVERY_S = 1.0
BYTES_MAX = 1 << 20


class Loads:
    """`wonders` says at each poll whether an answer would matter now."""

    every_s = 0.5

    def __init__(
        self, engine: Engine, question: LoadQuestion, ring: Ring, wonders: Callable[[float], bool],
        ask_every_s: float = EVERY_S,
    ) -> None:  # fmt: skip
        self.name = f"loads:{engine.key}"
        self._key, self._called_pid = engine.key, engine.called_pid
        self._ring, self._wonders = ring, wonders
        self._paths, self._samples = list(question.paths), question.samples
        parts = urlsplit(engine.url or "")
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._wanted = threading.Event()
        self._background = Background(self.name, ask_every_s, self._work)

    def poll(self, now: Stamp) -> Iterator[Said]:
        """Answers that arrived since."""
        for said in self._background.drain():
            if isinstance(said.seen, Scrape):
                stamp = local_text(now.wall_s, "# %Y-%m-%d %H:%M:%S\n")
                text = stamp + "".join(f"{series} {value}\n" for series, value in said.seen.samples.items())
                self._ring.write(f"loads-{self._called_pid}.prom", text.encode(), now.mono_s)
            yield said
        if self._wonders(now.mono_s):
            self._wanted.set()

    def close(self) -> None:
        """Stop asking."""
        self._background.close()

    def _work(self) -> list[Said]:
        if not self._wanted.is_set() or not self._paths:
            return []
        self._wanted.clear()
        return self._ask(self._paths[0])

    def _ask(self, path: str) -> list[Said]:
        began = time.monotonic()
        origin = Origin(f"http://{self._host}:{self._port}{path}")
        client = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            client.request("GET", path)
            answer = client.getresponse()
            body, status = answer.read(BYTES_MAX), answer.status
        except TimeoutError:
            took_ms = 1000 * (time.monotonic() - began)
            url = path.partition("?")[0]
            probe = HealthProbe(origin=origin, at_s=time.time_ns() / 1e9, url=url, status=None, latency_ms=took_ms)
            return [Said(self._key, probe)]
        except (OSError, http.client.HTTPException):
            return []
        finally:
            client.close()
        if status == 404:
            # This version does not know the path; the next one is tried when asked again.
            del self._paths[0]
            return []
        samples = _read(body, self._samples) if status == 200 else {}
        return [Said(self._key, Scrape(origin=origin, at_s=time.time_ns() / 1e9, samples=samples))] if samples else []


def _read(body: bytes, samples: Callable[[object], Mapping[str, float]]) -> dict[str, float]:
    try:
        return dict(samples(msgspec.json.decode(body)))
    except msgspec.DecodeError:
        return {}
