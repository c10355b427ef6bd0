"""Engine groups as configured: which engine belongs to a group, on which hosts, who supervises it, where its store is.

Read from the sections `groups`, `policy`, `delays` and `coordinator` of `sentinel.yaml`. A group without a supervisor
is watched and never touched.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from sentinel.config import COORDINATION, read_sections, source_of
from sentinel.model.cluster import Delays, Limits
from sentinel.model.group import GroupSpec

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Names of groups and hosts: they are parts of slot names and command ids."""
STORE_MARGIN = 1.15


class GroupError(Exception):
    """A group that cannot be used; the message names the key and what to do."""


class Supervisor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who owns the engine. `systemd`: `unit`. `docker`: `container`. `command`: `start` and `stop`, which return at
    once. `packaged`: `cluster`, the file of the co-packaged engine's launcher, which looks after all nodes itself.
    """

    kind: Literal["systemd", "docker", "command", "packaged"]
    unit: str = ""
    container: str = ""
    start: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    cluster: str = ""


class Store(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The engine's row store on a host: a folder with `NAME.page` and `NAME.sock` for every rank, and its size."""

    folder: str
    bytes: int = 0
    command: str = "rowstore"


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One group. `port` or `adapter` tell which engine of a host is meant; without either it must be the only one."""

    hosts: tuple[str, ...] = ()
    port: int | None = None
    adapter: str | None = None
    url: str = ""
    supervisor: Supervisor | None = None
    store: Store | None = None
    term_s: float = 15.0
    verify_s: float = 60.0


class Notify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where notices go. `url_file` holds the address, because addresses of webhooks are secrets."""

    kind: Literal["webhook", "slack", "alertmanager"]
    url_file: str
    at_least: Literal["info", "warning", "critical"] = "warning"


class Coordinator(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """This process: its host's name in groups, where the local API listens, who is told."""

    enabled: bool = True
    host: str = ""
    socket: str = ""
    notify: tuple[Notify, ...] = ()
    heartbeat_url_file: str = ""
    heartbeat_every_s: float = 60.0


class Coordination(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about groups that can be set."""

    groups: dict[str, Group] = {}
    policy: Limits = Limits()
    delays: Delays = Delays()
    coordinator: Coordinator = Coordinator()


def load_coordination(path: Path | None = None) -> Coordination:
    """The sections about groups of a configuration file. Raises ConfigError and GroupError."""
    source = source_of(path)
    if source is None:
        return Coordination()
    try:
        return coordination({key: value for key, value in read_sections(source).items() if key in COORDINATION})
    except GroupError as error:
        raise GroupError(f"{source}: {error}") from error


def coordination(values: Mapping[str, Any]) -> Coordination:
    """The sections as records. Raises GroupError."""
    try:
        found = msgspec.convert(dict(values), Coordination, strict=True)
    except msgspec.ValidationError as error:
        raise GroupError(str(error)) from error
    for name, group in found.groups.items():
        _check(name, group)
    if found.policy.restarts_max < 1 or not found.policy.backoff_s:
        raise GroupError("policy.restarts_max must be at least 1 and policy.backoff_s must have an entry")
    return found


def specs(found: Coordination, host: str) -> tuple[GroupSpec, ...]:
    """The groups as the core knows them; a group without hosts runs on this one."""
    return tuple(
        GroupSpec(
            name=name,
            hosts=group.hosts or (host,),
            acts=group.supervisor is not None,
            stores=group.store is not None,
        )
        for name, group in found.groups.items()
    )


def scaled(found: Coordination, scale: float) -> tuple[Limits, Delays]:
    """Policy and delays with every number of seconds divided by `scale`, for drills."""
    limits, delays = found.policy, found.delays
    if scale == 1.0:
        return limits, delays
    change: dict[str, Any] = {
        name: getattr(limits, name) / scale
        for name in limits.__struct_fields__
        if name.endswith("_s") and name != "backoff_s"
    }
    change["backoff_s"] = tuple(each / scale for each in limits.backoff_s)
    waits = {name: getattr(delays, name) / scale for name in delays.__struct_fields__}
    return msgspec.structs.replace(limits, **change), msgspec.structs.replace(delays, **waits)


def _check(name: str, group: Group) -> None:
    for word in (name, *group.hosts):
        if not NAME.fullmatch(word):
            raise GroupError(f"groups.{name}: {word} is not a name; use letters, digits, dot, dash and underscore")
    if len(set(group.hosts)) != len(group.hosts):
        raise GroupError(f"groups.{name}.hosts names a host twice")
    owner = group.supervisor
    if owner is None:
        return
    needed = {"systemd": ("unit",), "docker": ("container",), "command": ("start", "stop"), "packaged": ("cluster",)}
    for key in needed[owner.kind]:
        if not getattr(owner, key):
            raise GroupError(f"groups.{name}.supervisor.{key} is needed for kind {owner.kind}")
    if owner.kind == "packaged" and len(group.hosts) > 1:
        raise GroupError(f"groups.{name}.hosts: name only the host that launches; the launcher looks after its nodes")
