"""An engine's `/metrics`, asked with a short deadline on a thread; only the families that facts need are kept.

The page answers with frozen values while an engine hangs; that is exactly what is looked for.
"""

import http.client
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from sentinel.agent.ring import Ring
from sentinel.agent.source import Said
from sentinel.agent.sources.background import Background
from sentinel.collectors.prometheus_text import series_of
from sentinel.model.engine import Engine
from sentinel.model.observation import HealthProbe, Origin, Scrape
from sentinel.model.stamp import Stamp
from sentinel.plumbing.clock import local_text

TIMEOUT_S = 2.0
EVERY_S = 2.0
BYTES_MAX = 4 << 20
FAMILIES = (
    "sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:realtime_tokens_total",
    "sglang:generation_tokens_total", "sglang:num_grammar_queue_reqs", "sglang:num_decode_transfer_queue_reqs",
    "sglang:num_prefill_inflight_queue_reqs",
    "sglang:num_paused_reqs", "sglang:token_usage", "vllm:num_requests_running", "vllm:num_requests_waiting",
    "vllm:generation_tokens_total", "vllm:prompt_tokens_total", "vllm:iteration_tokens_total_count",
    "vllm:kv_cache_usage_perc", "vllm:engine_sleep_state", "sentinel_engine_",
)  # fmt: skip


class Metrics:
    """Scrapes one engine. An engine without a metrics page says nothing, which is not health."""

    every_s = 0.1

    def __init__(self, engine: Engine, ring: Ring, scrape_every_s: float = EVERY_S) -> None:
        self.name = f"metrics:{engine.key}"
        self._key, self._called_pid, self._ring = engine.key, engine.called_pid, ring
        parts = urlsplit(engine.url or "")
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._background = Background(self.name, scrape_every_s, self._scrape)

    def poll(self, now: Stamp) -> Iterator[Said]:
        """Scrapes that arrived since."""
        for said in self._background.drain():
            if isinstance(said.seen, Scrape):
                self._keep(said.seen, now)
            yield said

    def close(self) -> None:
        """Stop asking."""
        self._background.close()

    def _scrape(self) -> list[Said]:
        began = time.monotonic()
        client = http.client.HTTPConnection(self._host, self._port, timeout=TIMEOUT_S)
        try:
            client.request("GET", "/metrics")
            answer = client.getresponse()
            body = answer.read(BYTES_MAX)
            status: int | None = answer.status
        except TimeoutError:
            body, status = b"", None
        except (OSError, http.client.HTTPException):
            return []
        finally:
            client.close()
        at_s = time.time_ns() / 1e9
        origin = Origin(f"http://{self._host}:{self._port}/metrics")
        if status is None:
            took_ms = 1000 * (time.monotonic() - began)
            probe = HealthProbe(origin=origin, at_s=at_s, url="/metrics", status=None, latency_ms=took_ms)
            return [Said(self._key, probe)]
        samples = _samples(body.decode(errors="replace"))
        return [Said(self._key, Scrape(origin=origin, at_s=at_s, samples=samples))] if samples else []

    def _keep(self, scrape: Scrape, now: Stamp) -> None:
        stamp = local_text(now.wall_s, "# %Y-%m-%d %H:%M:%S\n")
        text = stamp + "".join(f"{series} {value}\n" for series, value in scrape.samples.items())
        self._ring.write(f"metrics-{self._called_pid}.prom", text.encode(), now.mono_s)


def _samples(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in text.split("\n"):
        if line.startswith(FAMILIES) and (parsed := series_of(line)) is not None:
            found[parsed[0]] = parsed[1]
    return found
