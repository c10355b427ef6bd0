"""What each setting means, for `docs/configuration.md` and for people who ask `sentinel config docs`."""

from collections.abc import Iterator, Mapping

import msgspec

from sentinel.config import SECTIONS
from sentinel.groups import SECTIONS as COORDINATION_SECTIONS
from sentinel.groups import Group, Notify, Store, Supervisor

GROUP_SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    "groups.NAME": Group,
    "groups.NAME.supervisor": Supervisor,
    "groups.NAME.store": Store,
    **COORDINATION_SECTIONS,
    "coordinator.notify": Notify,
}
"""What can be set about groups, by where it stands in the file."""

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
    "groups.NAME.hosts": "Hosts in the order of the start; the first serves rank 0. Empty: this host.",
    "groups.NAME.port": "Port of the engine's API; tells which engine of the host is meant.",
    "groups.NAME.adapter": "`sglang`, `vllm` or `packaged`; tells the same where there is no port.",
    "groups.NAME.url": "Where the engine is asked for a token, when the port alone does not tell.",
    "groups.NAME.supervisor": "Who owns the engine, see below. Without one the group is watched and never touched.",
    "groups.NAME.store": "The engine's row store, see below.",
    "groups.NAME.term_s": "Time between the request to end and the signal that cannot be refused.",
    "groups.NAME.verify_s": "Within this the stop has to be proved.",
    "groups.NAME.supervisor.kind": "`systemd`, `docker`, `command` or `packaged`.",
    "groups.NAME.supervisor.unit": "`systemd`: the unit.",
    "groups.NAME.supervisor.container": "`docker`: the container.",
    "groups.NAME.supervisor.start": "`command`: list of arguments that starts the engine and returns at once.",
    "groups.NAME.supervisor.stop": "`command`: list of arguments that asks it to end and returns at once.",
    "groups.NAME.supervisor.cluster": "`packaged`: the file of `sentinel-engine launch`.",
    "groups.NAME.store.folder": "Folder with `NAME.page` and `NAME.sock` of every rank.",
    "groups.NAME.store.bytes": "Size of the store, for the check that it fits into memory.",
    "groups.NAME.store.command": "Program that asks the store to switch or to unblock.",
    "policy.mode": "`observe`, `approve` or `auto`. `sentinel policy set` outranks it until the next `set`.",
    "policy.hold_s": "How long a group must have stood still before anything is done to it.",
    "policy.restarts_max": "Restarts of a group within `window_s`; then a person is needed.",
    "policy.window_s": "The window of that budget.",
    "policy.backoff_s": "Quiet time before the first, second, third and every later restart within the window.",
    "policy.calm_s": "Healthy time after which the back-off begins anew.",
    "policy.groups_at_once": "Groups that may be acted on at the same time,",
    "policy.groups_share": "or this share of all groups, whichever is more.",
    "policy.storm_share": "When this share of all groups, and",
    "policy.storm_groups": "at least this many, stand still",
    "policy.storm_s": "within this time, the global breaker opens.",
    "policy.jump_s": "How long a host whose clock jumped is no witness.",
    "policy.young_s": "How long an agent that has begun is no witness.",
    "policy.approval_s": "How long an approval lasts.",
    "policy.store_to_ram": "A restart whose verdict advises it also moves the row store to memory.",
    "policy.store_revert_s": "Return to NVMe after this time in memory; 0: never by itself.",
    "policy.store_window_s": "The mode is never changed twice within this time.",
    "policy.unblock_first": "End what stuck lanes wait in before an engine is restarted.",
    "delays.late_s": "A host that was not heard for this long forbids acting on its groups.",
    "delays.silent_s": "After this long its engines are unknown.",
    "delays.resend_s": "Pause before an unanswered command is sent again.",
    "delays.capture_s": "How long the coordinator waits for the evidence of all hosts.",
    "delays.recapture_s": "Pause before the evidence is taken anew when it did not decide.",
    "delays.probe_s": "Limit of the question for a token before a stop.",
    "delays.stop_s": "Limit of a stop with its proof.",
    "delays.start_s": "Limit of a start.",
    "delays.ready_s": "Limit from a start to the first token.",
    "delays.store_s": "Limit of a switch of the row store.",
    "delays.unblock_s": "Limit of an unblocking.",
    "delays.prove_s": "Within this the group must be seen to make progress.",
    "coordinator.enabled": "Report to a coordinator and obey it when there are groups.",
    "coordinator.embedded": "`sentinel watch` leads too; false where `sentinel coordinate` alone does.",
    "coordinator.metrics_listen": "HOST:PORT of the page of `sentinel coordinate`; empty for none.",
    "coordinator.metrics_textfile": "It also writes its values to this file, for node_exporter's textfile collector.",
    "coordinator.host": "This host's name in `groups`. Empty: the host's name up to its first dot.",
    "coordinator.socket": "Unix socket of the local API; empty for none.",
    "coordinator.listen": "HOST:PORT of the API for holders of a token; empty for none.",
    "coordinator.tokens_file": "Who may ask there: lines of `viewer|operator NAME TOKEN`. Needed with `listen`.",
    "coordinator.beyond_loopback": "Let `listen` be another address than loopback. TLS is needed then.",
    "coordinator.certificate_file": "Certificate of the API (PEM); with `key_file`.",
    "coordinator.key_file": "Key of the API (PEM).",
    "coordinator.notify": "List of places that are told, see below.",
    "coordinator.heartbeat_url_file": "File with an address that is fetched regularly: its owner notices silence.",
    "coordinator.heartbeat_every_s": "How often.",
    "coordinator.notify.kind": "`webhook`, `slack` or `alertmanager`.",
    "coordinator.notify.url_file": "File with the address: addresses of webhooks are secrets.",
    "coordinator.notify.at_least": "`info`, `warning` or `critical`; the end of an incident is always told.",
}


def reference() -> Iterator[str]:
    """`docs/configuration.md`, line by line."""
    yield "# Configuration"
    yield ""
    yield "Written from the schema by `sentinel config docs`. Nothing has to be set."
    yield "`/etc/sentinel/sentinel.yaml` replaces defaults, `SENTINEL_<SECTION>_<KEY>` replaces both,"
    yield "`sentinel config show` tells where each value came from, `sentinel config check` whether all can be used."
    yield "Unknown keys and values that cannot work together are refused when the agent starts. Times are seconds."
    for section, kind in SECTIONS.items():
        yield from _table(section, kind)
    yield ""
    yield "What follows is about groups of engines, see [coordinator](coordinator.md). The environment does not reach"
    yield "into `groups` and lists."
    for section, kind in GROUP_SECTIONS.items():
        yield from _table(section, kind)


def _table(section: str, kind: type[msgspec.Struct]) -> Iterator[str]:
    yield ""
    yield f"## {section}"
    yield ""
    yield "| key | default | meaning |"
    yield "|---|---|---|"
    for field in msgspec.structs.fields(kind):
        if field.required:
            shown = "needed"
        else:
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            shown = _words(default)
        yield f"| `{field.name}` | {shown} | {MEANINGS[f'{section}.{field.name}']} |"


def _words(default: object) -> str:
    """A default as it would be written; empty for nothing."""
    if default is None or default in ("", ()):
        return ""
    if isinstance(default, tuple):
        return f"`[{', '.join(map(str, default))}]`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
