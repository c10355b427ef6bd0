"""Settings of one engine, the same on every rank: read strictly from a TOML or JSON file.

One node is started by
`python -m sentinel_engine.worker --config FILE --rank 0,1 --world 2 --master HOST:PORT`:
a small supervisor that starts the named ranks of this node (one number, or several with commas),
and next to rank 0 the HTTP front end. It exits 0 after SIGTERM, `EXIT_KILLED` when the watchdog or
a lost rank ended the tree. `HOST:PORT` is where rank 0 listens for its peers.
"""

import difflib
import json
import math
import shlex
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

EXIT_KILLED = 131
"""Exit status of a node whose tree was killed by its watchdog or because a rank was lost."""

TINY_MODEL = Path(__file__).parent / "assets" / "tiny"
MODES = ("nvme", "ram", "auto", "legacy")
HANDOFFS = ("callback", "memop", "prestage")
GEOMETRIES = {"deepseek-v4.1-flash": 16_000_000}
"""Published tables by name: the least rows of their hash heads."""
GEOMETRY_ROWS_MAX = 1 << 32
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class BadConfig(ValueError):
    """A setting that cannot be used; the text says which and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """All settings. Paths are strings; sizes are in tokens or bytes, durations in seconds."""

    rows: str
    """Folder of this node's row-store slices, written by `python -m sentinel_engine.stage`."""
    runtime_dir: str
    """Folder for sockets, telemetry pages and collective rings; created when missing."""
    model: str = str(TINY_MODEL)
    rows_mode: str = "nvme"
    rows_settings: dict[str, str | int] = field(default_factory=dict)
    """More settings of the row store by its own names, such as hard_ms or cache_bytes."""
    geometry: str = ""
    """Sparse tables of a published size instead of the model's own: a name of `GEOMETRIES`, or a
    number, the least rows of a hash head, for tests. Rows that were not staged are zeros."""
    world: int = 1
    device: str = "cpu"
    handoff: str = "callback"
    """How a step gets its rows on a GPU: host callback, memory operations, or staged before."""
    cuda_graphs: bool = True
    host: str = "127.0.0.1"
    port: int = 30000
    admin_host: str = "127.0.0.1"
    """Address from which `/rowstore/mode` and `/faults` are served; others are refused."""
    admin_token: str = ""
    """Bearer token of `/rowstore/mode` and `/faults`; without one they answer 403."""
    master_host: str = "127.0.0.1"
    master_port: int = 29500
    interface: str = ""
    """Network interface of the collectives; empty: the library's choice."""
    max_running: int = 8
    max_queue: int = 64
    max_body_bytes: int = 1 << 20
    kv_pages: int = 512
    page_tokens: int = 16
    chunk_tokens: int = 128
    context_tokens: int = 1024
    draft_tokens: int = 3
    batch_shapes: tuple[int, ...] = (1, 2, 4, 8)
    """Batch sizes to which decode steps are padded, and for which graphs are captured."""
    watchdog_timeout_s: float = 300.0
    soft_watchdog_timeout_s: float = 0.0
    stop_grace_s: float = 10.0
    decode_log_interval: int = 40
    faults_allowed: bool = False
    log_file: str = ""
    """File that takes the log of all processes of this node; empty: stderr of the worker."""
    seed: int = 0

    def __post_init__(self) -> None:
        _one_of("rows_mode", self.rows_mode, MODES)
        _one_of("device", self.device, ("cpu", "cuda"))
        _one_of("handoff", self.handoff, HANDOFFS)
        if self.geometry not in ("", *GEOMETRIES) and not (
            self.geometry.isdecimal() and 0 < int(self.geometry) < GEOMETRY_ROWS_MAX
        ):
            names = ", ".join(GEOMETRIES)
            raise BadConfig(f"geometry={self.geometry} is not {names} or a number of rows a head")
        for name in ("world", "max_running", "max_queue", "page_tokens", "chunk_tokens",
                     "context_tokens", "decode_log_interval", "max_body_bytes"):  # fmt: skip
            _at_least(name, getattr(self, name), 1)
        for name in ("draft_tokens", "watchdog_timeout_s", "soft_watchdog_timeout_s", "port",
                     "stop_grace_s"):  # fmt: skip
            _at_least(name, getattr(self, name), 0)
        _at_least("kv_pages", self.kv_pages, self.pages_per_request + 1)
        if not self.batch_shapes or max(self.batch_shapes) < self.max_running:
            raise BadConfig(f"batch_shapes must reach max_running={self.max_running}")

    @property
    def geometry_rows(self) -> int:
        """Least rows of a hash head of the geometry; 0: the tables are the model's own."""
        return GEOMETRIES.get(self.geometry) or int(self.geometry or 0)

    @property
    def stage_command(self) -> str:
        """What writes the slices of this engine."""
        words = ["--world", str(self.world), "--model", self.model]
        words += ["--geometry", self.geometry] if self.geometry else []
        return f"python -m sentinel_engine.stage {shlex.join([*words, self.rows])}"

    @property
    def pages_per_request(self) -> int:
        """KV pages of a request of full length, drafted tokens included."""
        return math.ceil((self.context_tokens + self.draft_tokens + 1) / self.page_tokens)

    def shape_for(self, batch: int) -> int:
        """The smallest batch shape that holds `batch` requests."""
        return min(shape for shape in self.batch_shapes if shape >= batch)


def slice_path(config: EngineConfig, layer: int, rank: int) -> Path:
    """The RWS1 file with the rows of one layer and rank."""
    kind = f"geometry{config.geometry_rows}." if config.geometry_rows else ""
    return Path(config.rows) / f"{kind}layer{layer}.rank{rank}of{config.world}.rws"


def load_config(path: Path) -> EngineConfig:
    """Read a `.toml` or `.json` file; BadConfig names the file and the setting."""
    try:
        text = path.read_text()
        raw = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        return parse_config(raw)
    except OSError as error:
        raise BadConfig(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BadConfig(f"{path}: {error}") from error


def parse_config(raw: dict[str, Any]) -> EngineConfig:
    """Settings from a mapping: unknown names, wrong types and missing settings are refused."""
    known = get_type_hints(EngineConfig)
    for name in raw:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BadConfig(f"unknown setting {name}{hint}")
    missing = [name for name in ("rows", "runtime_dir") if name not in raw]
    if missing:
        raise BadConfig(f"missing setting {', '.join(missing)}")
    return EngineConfig(**{name: _typed(name, value, known[name]) for name, value in raw.items()})


def dump_config(config: EngineConfig) -> dict[str, Any]:
    """The settings as JSON values; `parse_config` reads them back."""
    values = {one.name: getattr(config, one.name) for one in fields(config)}
    return {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}


def _typed(name: str, value: Any, kind: Any) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind in (str, int, float, bool):
        if type(value) is not kind:
            raise BadConfig(f"{name} must be of type {kind.__name__}, not {value!r}")
        return value
    if name == "batch_shapes":
        if not isinstance(value, list) or not all(type(one) is int and one > 0 for one in value):
            raise BadConfig(f"{name} must be a list of positive whole numbers")
        return tuple(sorted(value))
    if not isinstance(value, dict) or not all(type(v) in (str, int) for v in value.values()):
        raise BadConfig(f"{name} must be a table of words and whole numbers")
    return value


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise BadConfig(f"{name}={value} is not one of {', '.join(allowed)}")


def _at_least(name: str, value: float, least: int) -> None:
    if value < least:
        raise BadConfig(f"{name}={value} must be at least {least}")
