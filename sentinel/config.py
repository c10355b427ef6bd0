"""The agent's configuration: one frozen record, strict, every value with the place it came from.

Zero configuration is the normal case. `sentinel.yaml` overrides defaults, `SENTINEL_<SECTION>_<KEY>` overrides the
file. Unknown keys are errors that name the nearest known one; values that could not work together are refused at load.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from sentinel.model.event import CoreSettings

DEFAULT_PATH = Path("/etc/sentinel/sentinel.yaml")
FILE_BYTES_MAX = 1 << 20


class ConfigError(Exception):
    """A configuration that cannot be used; the message says which key and what to do."""


class Timing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds. `time_scale` divides all of them, for drills; the product runs at 1."""

    silence_floor_s: float = 8.0
    silence_factor: float = 6.0
    capture_after_s: float = 60.0
    capture_budget_s: float = 20.0
    boot_silence_s: float = 300.0
    first_token_s: float = 60.0
    rejudge_every_s: float = 30.0
    tick_s: float = 0.5
    discover_every_s: float = 2.0
    scrape_every_s: float = 2.0
    time_scale: float = 1.0


class Folders(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where things are kept; all below `state` unless set."""

    state: str = "/var/lib/sentinel"
    journal: str = ""
    ring: str = ""
    incidents: str = ""


class Sources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Switches; a source that is off is listed as unavailable, never as healthy."""

    engine_log: bool = True
    nccl_debug: bool = True
    metrics: bool = True
    processes: bool = True
    pressure: bool = True
    kernel_log: bool = True
    gpu: bool = True
    rdma: bool = True
    block: bool = True
    store_page: bool = True


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds of what is kept on disk."""

    journal_bytes: int = 256 << 20
    incidents_kept: int = 20
    incident_bytes: int = 256 << 20


class Metrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where metrics are served; empty means not there. Off loopback TLS and a token are due."""

    listen: str = "127.0.0.1:9469"
    certificate_file: str = ""
    key_file: str = ""
    token_file: str = ""
    textfile: str = ""

    def address(self) -> tuple[str, int]:
        """Host and port of `listen`. Raises ConfigError."""
        return address("metrics.listen", self.listen)


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that can be set."""

    timing: Timing = Timing()
    folders: Folders = Folders()
    sources: Sources = Sources()
    limits: Limits = Limits()
    metrics: Metrics = Metrics()

    def core(self) -> CoreSettings:
        """What the core needs, scaled."""
        scale = self.timing.time_scale
        names = [name for name in CoreSettings.__struct_fields__ if hasattr(self.timing, name)]
        scaled = {name: getattr(self.timing, name) / (1.0 if name == "silence_factor" else scale) for name in names}
        return CoreSettings(**scaled, recovered_after_s=10.0 / scale)

    def folder(self, name: str) -> Path:
        """Path of a folder by its name in `folders`."""
        given: str = getattr(self.folders, name)
        return Path(given) if given else Path(self.folders.state) / name


SECTIONS: Mapping[str, type[msgspec.Struct]] = {
    "timing": Timing,
    "folders": Folders,
    "sources": Sources,
    "limits": Limits,
    "metrics": Metrics,
}

COORDINATION = frozenset({"groups", "policy", "delays", "coordinator"})
"""Sections of the same file that `sentinel/groups.py` reads."""


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> tuple[Config, dict[str, str]]:
    """(configuration, origin of every value as `section.key` -> words). Raises ConfigError.

    `path` None reads the default file if it exists.
    """
    values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    origins = {f"{section}.{key}": "default" for section, kind in SECTIONS.items() for key in kind.__struct_fields__}
    source = source_of(path)
    if source is not None:
        for section, key, value in _from_file(source):
            values[section][key] = value
            origins[f"{section}.{key}"] = str(source)
    for name, section, key, text in from_environ(os.environ if environ is None else environ, SECTIONS):
        values[section][key] = yaml.safe_load(text)
        origins[f"{section}.{key}"] = name
    try:
        config = msgspec.convert(values, Config, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source or 'environment'}: {error}") from error
    _check(config)
    return config, origins


def configured(path: Path | None = None, state: Path | None = None) -> Config:
    """The configuration that a verb works by: its `--state` outranks file and environment. Raises ConfigError."""
    config, _ = load(path, os.environ if state is None else {**os.environ, "SENTINEL_FOLDERS_STATE": str(state)})
    return config


def effective(config: Config, origins: Mapping[str, str]) -> Iterator[str]:
    """The configuration in force, one line a value with its origin."""
    for section, kind in SECTIONS.items():
        for key in kind.__struct_fields__:
            value = getattr(getattr(config, section), key)
            yield f"{section}.{key} = {value!r}  # {origins[f'{section}.{key}']}"


def source_of(path: Path | None) -> Path | None:
    """The file to read: the one that is named, else the default one if there is one."""
    return path or (DEFAULT_PATH if DEFAULT_PATH.exists() else None)


def read_sections(path: Path) -> dict[str, Any]:
    """Section -> what stands below it, as the file has it. Raises ConfigError."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from error
    if len(text) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: larger than {FILE_BYTES_MAX} bytes")
    try:
        loaded = yaml.safe_load(text) or {}
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(loaded, dict):
        raise ConfigError(f"{path}: sections such as `timing:` are expected")
    return loaded


def _from_file(path: Path) -> Iterator[tuple[str, str, Any]]:
    for section, keys in read_sections(path).items():
        if section in COORDINATION:
            continue
        if section not in SECTIONS:
            known = (*SECTIONS, *COORDINATION)
            raise ConfigError(f"{path}: {section} is not a section{hint(str(section), known)}")
        if not isinstance(keys, dict):
            raise ConfigError(f"{path}: {section} needs keys below it")
        keys_known = SECTIONS[section].__struct_fields__
        for key, value in keys.items():
            if key not in keys_known:
                raise ConfigError(f"{path}: {section}.{key} is not a setting{hint(str(key), keys_known)}")
            yield section, key, value


def from_environ(
    environ: Mapping[str, str], sections: Mapping[str, type[msgspec.Struct]]
) -> Iterator[tuple[str, str, str, str]]:
    """(variable, section, key, text) of every setting in the environment. Raises ConfigError for unknown keys."""
    for name, text in sorted(environ.items()):
        prefix, _, rest = name.partition("_")
        section, _, key = rest.lower().partition("_")
        if prefix == "SENTINEL" and section in sections:
            if key not in sections[section].__struct_fields__:
                raise ConfigError(f"{name}: not a setting{hint(key, sections[section].__struct_fields__)}")
            yield name, section, key, text


def _check(config: Config) -> None:
    timing = config.timing
    for key in Timing.__struct_fields__:
        if getattr(timing, key) <= 0:
            raise ConfigError(f"timing.{key} must be above 0")
    if timing.capture_after_s < timing.silence_floor_s:
        raise ConfigError(
            "timing.capture_after_s is below timing.silence_floor_s: evidence would be taken before anything is "
            "suspected; raise the first or lower the second"
        )
    _check_metrics(config.metrics)


def _check_metrics(metrics: Metrics) -> None:
    if metrics.listen and bool(metrics.certificate_file) != bool(metrics.key_file):
        raise ConfigError("metrics.certificate_file and metrics.key_file belong together; set both or none")
    check_page("metrics.listen", metrics.listen, metrics)


def check_page(key: str, listen: str, metrics: Metrics) -> None:
    """Raises ConfigError where a page of metrics would be open to the network without TLS and a token."""
    if not listen:
        return
    host, _ = address(key, listen)
    if not is_loopback(host) and not (metrics.certificate_file and metrics.token_file):
        raise ConfigError(
            f"{key}: {host} is not loopback; set metrics.certificate_file, metrics.key_file and "
            "metrics.token_file, or listen on 127.0.0.1"
        )


def address(key: str, listen: str) -> tuple[str, int]:
    """Host and port of a setting. Raises ConfigError that names its key."""
    try:
        parts = urlsplit(f"//{listen}")
        if parts.hostname is not None and parts.port is not None:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise ConfigError(f"{key}: {listen} is not HOST:PORT, such as 127.0.0.1:9469 or [::1]:9469")


def is_loopback(host: str) -> bool:
    """Whether only this host can reach the address."""
    return host in ("localhost", "::1") or host.startswith("127.")


def hint(word: str, known: Iterable[str]) -> str:
    """Words that name the nearest known one; empty when none is near."""
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
