"""What each setting means, for `docs/configuration.md` and for people who ask `sentinel config docs`."""

from collections.abc import Iterator, Mapping

from sentinel.config import SECTIONS

MEANINGS: Mapping[str, str] = {
    "timing.silence_floor_s": "Silence below which nothing is suspected. Above the longest healthy pause.",
    "timing.silence_factor": "An engine may be silent for this many of its usual intervals between progress lines.",
    "timing.capture_after_s": "Silence after which evidence is taken; earlier when the engine would end itself before.",
    "timing.capture_budget_s": "Most that one capture may take.",
    "timing.boot_silence_s": "How long a start may stand still before it is suspected.",
    "timing.first_token_s": "How long the first request after a start may take to its first token.",
    "timing.rejudge_every_s": "How often a standing verdict is looked at again.",
    "timing.tick_s": "Pause between two turns of the agent's loop.",
    "timing.discover_every_s": "Pause between two looks for engines.",
    "timing.scrape_every_s": "Pause between two scrapes of an engine's metrics page.",
    "timing.time_scale": "Divides all of the above; for drills. 1 in production.",
    "folders.state": "Everything that the agent keeps, unless one of the others is set.",
    "folders.journal": "Events and effects, for replay. Empty: below `state`.",
    "folders.ring": "The last minutes of every signal. Empty: below `state`.",
    "folders.incidents": "One folder an incident, with its evidence. Empty: below `state`.",
    "sources.engine_log": "Follow the engine's log.",
    "sources.nccl_debug": "Follow the files that NCCL_DEBUG_FILE names.",
    "sources.metrics": "Scrape the engine's own metrics page.",
    "sources.processes": "Watch the states of the engine's processes.",
    "sources.pressure": "Read pressure-stall information of the host.",
    "sources.kernel_log": "Follow the kernel log.",
    "sources.gpu": "Ask the NVIDIA driver, in a process of its own.",
    "sources.rdma": "Read counters and states of RDMA ports.",
    "sources.block": "Read what block devices have in flight.",
    "sources.store_page": "Read the telemetry pages of row stores.",
    "limits.journal_bytes": "Most that the journal may take.",
    "limits.incidents_kept": "How many incidents are kept; the oldest go first.",
    "limits.incident_bytes": "Most that the evidence of one incident may take.",
    "metrics.listen": "HOST:PORT of the page for Prometheus; empty for none.",
    "metrics.certificate_file": "Certificate of the page (PEM); with `key_file`. Needed off loopback.",
    "metrics.key_file": "Key of the page (PEM).",
    "metrics.token_file": "File with the bearer token that a scraper has to show. Needed off loopback.",
    "metrics.textfile": "Also write the values to this file, for node_exporter's textfile collector.",
}


def reference() -> Iterator[str]:
    """`docs/configuration.md`, line by line."""
    yield "# Configuration"
    yield ""
    yield "Written from the schema by `sentinel config docs`. Nothing has to be set."
    yield "`/etc/sentinel/sentinel.yaml` replaces defaults, `SENTINEL_<SECTION>_<KEY>` replaces both,"
    yield "`sentinel config show` tells where each value came from."
    yield "Unknown keys and values that cannot work together are refused when the agent starts. Times are seconds."
    yield "The sections `groups`, `policy`, `delays` and `coordinator` of the same file are described in"
    yield "[coordinator](coordinator.md)."
    for section, kind in SECTIONS.items():
        yield ""
        yield f"## {section}"
        yield ""
        yield "| key | default | meaning |"
        yield "|---|---|---|"
        defaults = kind()
        for key in kind.__struct_fields__:
            default = getattr(defaults, key)
            shown = "" if default == "" else f"`{str(default).lower() if isinstance(default, bool) else default}`"
            yield f"| `{key}` | {shown} | {MEANINGS[f'{section}.{key}']} |"
