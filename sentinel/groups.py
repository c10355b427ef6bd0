"""Engine groups as configured: which engine belongs to a group, on which hosts, who supervises it, where its store is.

Read from the sections `groups`, `policy`, `delays` and `coordinator` of `sentinel.yaml`. A group without a supervisor
is watched and never touched.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml
from msgspec.inspect import DictType, StructType, Type, UnionType, VarTupleType, type_info

from sentinel.config import (
    COORDINATION,
    ConfigError,
    address,
    from_environ,
    hint,
    is_loopback,
    read_sections,
    source_of,
)
from sentinel.model.cluster import Delays, Limits
from sentinel.model.group import GroupSpec

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Names of groups and hosts: they are parts of slot names and command ids."""
STORE_MARGIN = 1.15
DELAY_MAX_S = 604_800
HEARTBEAT_MIN_S = 1.0


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
    embedded: bool = True
    metrics_listen: str = "127.0.0.1:9470"
    metrics_textfile: str = ""
    host: str = ""
    socket: str = ""
    listen: str = ""
    tokens_file: str = ""
    beyond_loopback: bool = False
    certificate_file: str = ""
    key_file: str = ""
    notify: tuple[Notify, ...] = ()
    heartbeat_url_file: str = ""
    heartbeat_every_s: float = 60.0


class Coordination(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything about groups that can be set."""

    groups: dict[str, Group] = {}
    policy: Limits = Limits()
    delays: Delays = Delays()
    coordinator: Coordinator = Coordinator()


SECTIONS: Mapping[str, type[msgspec.Struct]] = {"policy": Limits, "delays": Delays, "coordinator": Coordinator}
"""Sections whose keys the environment may set too, as `SENTINEL_<SECTION>_<KEY>`."""


def load_coordination(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Coordination:
    """The sections about groups of a configuration file and the environment. Raises ConfigError and GroupError."""
    return load_with_origins(path, environ)[0]


def load_with_origins(
    path: Path | None = None, environ: Mapping[str, str] | None = None
) -> tuple[Coordination, dict[str, str]]:
    """The same, with the place that every value that is no default came from. Raises ConfigError and GroupError."""
    source = source_of(path)
    values: dict[str, Any] = {}
    if source is not None:
        values = {key: value for key, value in read_sections(source).items() if key in COORDINATION}
    origins = {name: str(source) for name, _ in _leaves(values)}
    for name, section, key, text in from_environ(os.environ if environ is None else environ, SECTIONS):
        given = values.get(section)
        values[section] = {**(given if isinstance(given, dict) else {}), key: yaml.safe_load(text)}
        origins[f"{section}.{key}"] = name
    try:
        return coordination(values), origins
    except GroupError as error:
        raise GroupError(f"{source or 'environment'}: {error}") from error


def effective(found: Coordination, origins: Mapping[str, str]) -> Iterator[str]:
    """What is in force, one line a value with its origin."""
    for name, value in _leaves(found):
        yield f"{name} = {value!r}  # {origins.get(name, 'default')}"


def coordination(values: Mapping[str, Any]) -> Coordination:
    """The sections as records. Raises GroupError."""
    for name, word, known in _unknown(values, type_info(Coordination), ""):
        raise GroupError(f"{name} is not a setting{hint(word, known)}")
    try:
        found = msgspec.convert(dict(values), Coordination, strict=True)
    except msgspec.ValidationError as error:
        raise GroupError(str(error)) from error
    for name, group in found.groups.items():
        _check(name, group)
    _check_policy(found.policy)
    _check_delays(found.delays)
    _check_api(found.coordinator)
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


def _check_policy(policy: Limits) -> None:
    if policy.restarts_max < 1 or not policy.backoff_s:
        raise GroupError("policy.restarts_max must be at least 1 and policy.backoff_s must have an entry")
    for name in policy.__struct_fields__:
        value = getattr(policy, name)
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(number, int | float) and not number >= 0 for number in numbers):
            raise GroupError(f"policy.{name} must not be below 0")


def _check_delays(delays: Delays) -> None:
    for name in delays.__struct_fields__:
        if not 0 < getattr(delays, name) <= DELAY_MAX_S:
            raise GroupError(f"delays.{name} must be above 0 and at most {DELAY_MAX_S} s, a week")
    if delays.silent_s < delays.late_s:
        raise GroupError("delays.silent_s is below delays.late_s: a host would be unknown before it is late")


def _check_api(coordinator: Coordinator) -> None:
    if bool(coordinator.certificate_file) != bool(coordinator.key_file):
        raise GroupError("coordinator.certificate_file and coordinator.key_file belong together; set both or none")
    if not coordinator.heartbeat_every_s >= HEARTBEAT_MIN_S:
        raise GroupError(f"coordinator.heartbeat_every_s must be at least {HEARTBEAT_MIN_S:g} s")
    if not coordinator.listen:
        return
    try:
        host, _ = address("coordinator.listen", coordinator.listen)
    except ConfigError as error:
        raise GroupError(str(error)) from error
    if not coordinator.tokens_file:
        raise GroupError("coordinator.listen needs coordinator.tokens_file: whoever reaches the port could give orders")
    if is_loopback(host):
        return
    if not coordinator.beyond_loopback:
        raise GroupError(
            f"coordinator.listen: {host} is not loopback; listen on 127.0.0.1, or set coordinator.beyond_loopback"
        )
    if not coordinator.certificate_file:
        raise GroupError("coordinator.beyond_loopback needs coordinator.certificate_file and coordinator.key_file")


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its dotted name, of records as well as of what a file holds."""
    pairs: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, msgspec.Struct):
        pairs = ((key, getattr(value, key)) for key in value.__struct_fields__)
    elif isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list | tuple) and any(isinstance(each, msgspec.Struct | dict) for each in value):
        pairs = enumerate(value)
    found = False
    for key, each in pairs:
        found = True
        yield from _leaves(each, f"{name}.{key}" if name else str(key))
    if not found and name:
        yield name, value


def _unknown(values: Any, kind: Type, name: str) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """(dotted name, key, keys that are known there) of everything that the schema does not have."""
    if isinstance(kind, UnionType):
        for each in kind.types:
            yield from _unknown(values, each, name)
    elif isinstance(kind, StructType) and isinstance(values, Mapping):
        known = {field.encode_name: field.type for field in kind.fields}
        for key, value in values.items():
            below = f"{name}.{key}" if name else str(key)
            if key not in known:
                yield below, str(key), tuple(known)
            else:
                yield from _unknown(value, known[key], below)
    elif isinstance(kind, DictType) and isinstance(values, Mapping):
        for key, value in values.items():
            yield from _unknown(value, kind.value_type, f"{name}.{key}")
    elif isinstance(kind, VarTupleType) and isinstance(values, list | tuple):
        for number, value in enumerate(values):
            yield from _unknown(value, kind.item_type, f"{name}.{number}")
