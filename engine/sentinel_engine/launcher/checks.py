"""What must hold on a node before an engine starts there; looks only, leaves nothing behind."""

import hashlib
import importlib.metadata
import os
import platform
import random
import resource
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..config import EngineConfig, parse_config, slice_path
from ..modelfile import Tables, load_model_config
from ..rowstore import BadTable, RowStoreError, Slice, Store, native, reader
from ..rowstore.geometry import PAGE_BYTES
from ..stage import mismatch, model_digest
from . import processes

SAMPLED_PAGES = 300
WHOLE_FILE_BYTES = 64 << 20
EDGE_BYTES = 1 << 20
CAP_IPC_LOCK = 14


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: `same` must be equal on all nodes; `todo` says what to do when not ok."""

    name: str
    ok: bool
    says: str
    todo: str = ""
    same: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A slice that the engine will open, and the rows it must hold."""

    path: Path
    layer: int
    slice: Slice


@dataclass(frozen=True, slots=True)
class Place:
    """A node as its checks see it; `tables` is empty when the model cannot be read."""

    request: dict[str, Any]
    config: EngineConfig
    tables: tuple[Table, ...]

    @property
    def locked_bytes(self) -> int:
        """Table bytes that the mode locks in memory at start."""
        if self.config.rows_mode not in ("ram", "auto"):
            return 0
        return sum(table.path.stat().st_size for table in self.tables if table.path.exists())


def tables(config: EngineConfig, ranks: Sequence[int]) -> tuple[Table, ...]:
    """Every slice of these ranks; OSError or ValueError when the model's sizes are unreadable."""
    model = load_model_config(Path(config.model))
    whole = Tables(model, config.geometry_rows)
    return tuple(
        Table(slice_path(config, layer, rank), layer, whole.slice(layer, rank, config.world))
        for rank in ranks for layer in model.engram_layers
    )  # fmt: skip


def _hash_edges(path: Path, digest: "hashlib._Hash") -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= WHOLE_FILE_BYTES:
            digest.update(hashlib.file_digest(file, "sha256").digest())
            return
        digest.update(file.read(EDGE_BYTES))
        file.seek(size - EDGE_BYTES)
        digest.update(file.read(EDGE_BYTES))


def folder_digest(folder: Path, suffix: str = "") -> str:
    """Names, sizes and content of a folder; of files over 64 MiB only the first and last MiB."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob(f"*{suffix}")):
        if path.is_file():
            digest.update(f"{path.relative_to(folder)}\0{path.stat().st_size}\0".encode())
            _hash_edges(path, digest)
    return digest.hexdigest()[:16]


def _engine(_place: Place) -> Check:
    source = folder_digest(Path(__file__).parents[1], ".py")
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        todo = "pip install 'sentinel-engine[serve]'"
        return Check("engine", False, "torch is not installed", todo)
    says = f"source {source}, torch {torch}, Python {platform.python_version()}"
    return Check("engine", True, says, "install the same engine and torch on all nodes", says)


def _model(place: Place) -> Check:
    folder = Path(place.config.model)
    digest = folder_digest(folder)
    todo = "copy the model again from the head, all files"
    return Check("model", True, f"{folder} {digest}", todo, digest)


def _bad_pages(table: Table) -> tuple[int, int]:
    """Bad and checked pages among the first, the last and a random sample; BadTable else.

    Of a sparse table a second sample is drawn among the pages that were written.
    """
    path = table.path
    header = reader.read_header(path)
    if (header.layer, header.slice) != (table.layer, table.slice):
        raise BadTable(f"{path} holds the rows of another rank, layer, world size or model")
    manifest = reader.matching_manifest(path, header)
    written = reader.written_pages(header, manifest) if header.sparse else None
    draw = random.Random(str(path))
    wanted = {0, header.pages - 1}
    for some in (range(header.pages), () if written is None else written.tolist()):
        wanted.update(draw.sample(some, min(SAMPLED_PAGES, len(some))))
    bad = 0
    with path.open("rb") as file:
        for page in sorted(wanted):
            file.seek(header.data_offset + page * PAGE_BYTES)
            block = np.frombuffer(file.read(PAGE_BYTES), dtype=np.uint8)
            bad += reader.bad_pages(header, page, block, written)[0]
    return bad, len(wanted)


def _slice(place: Place) -> Check:
    config = place.config
    todo = f"`{config.stage_command}`, then `rowstore verify`"
    pages, digest = 0, model_digest(Path(config.model))
    for table in place.tables:
        try:
            if problem := mismatch(table.path, digest):
                return Check("slice", False, problem, todo)
            bad, checked = _bad_pages(table)
        except (RowStoreError, OSError) as error:
            return Check("slice", False, str(error), todo)
        pages += checked
        if bad:
            return Check("slice", False, f"{table.path}: {bad} of {checked} pages are bad", todo)
    kind = f" of geometry {config.geometry}, {_sizes(place.tables)}" if config.geometry else ""
    says = f"{len(place.tables)} slices{kind}: rows, manifest and {pages} sampled pages good"
    return Check("slice", True, says, todo)


def _sizes(found: Sequence[Table]) -> str:
    rows = sum(table.slice.rows for table in found)
    apparent = sum(table.path.stat().st_size for table in found)
    allocated = sum(reader.allocated_bytes(table.path) for table in found)
    return f"{rows:,} rows in {apparent:,} bytes, {allocated:,} of them allocated"


def _probe(place: Place) -> Check:
    todo = "see the reasons: O_DIRECT needs a local file system, io_uring may be off in containers"
    try:
        with Store(place.tables[0].path, mode="nvme", lanes=1) as store:
            reason = store.info()["io_reason"]
    except RowStoreError as error:
        return Check("direct reads", False, str(error), todo)
    return Check("direct reads", True, str(reason), todo)


def _may_lock() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_IPC_LOCK & 1)
    return False


def _memlock(place: Place) -> Check:
    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    needed = place.locked_bytes
    may = _may_lock()
    enough = limit == resource.RLIM_INFINITY or limit >= needed or may
    shown = "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,} bytes"
    says = f"limit {shown}, capability {'yes' if may else 'no'}, {needed:,} bytes to lock"
    return Check("memlock", enough, says, "ulimit -l unlimited, or LimitMEMLOCK=infinity")


def _memory(place: Place) -> Check:
    fits, reason = native.ram_fit(place.locked_bytes, place.request["memory_floor_bytes"])
    return Check("memory", fits, reason, "free memory, use mode nvme, or lower memory_floor_bytes")


def _bindable(host: str, port: int) -> str:
    """Empty, or why nothing can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError as error:
            return f"{host}:{port}: {error.strerror}"
    return ""


def _address(place: Place) -> Check:
    address, interface = place.request["address"], place.config.interface
    todo = "correct address and interface of this node in the cluster file"
    if interface and not Path("/sys/class/net", interface).exists():
        return Check("address", False, f"no interface {interface}", todo)
    why = _bindable(address, 0)
    says = why or f"{address} is here" + (f", interface {interface} exists" if interface else "")
    return Check("address", not why, says, todo)


def _hca(place: Place) -> Check:
    name, gid = place.request["hca"], place.request["gid"]
    port = Path("/sys/class/infiniband", name, "ports", "1")
    todo = "see `ls /sys/class/infiniband` and `show_gids`; correct hca and gid of this node"
    if not port.is_dir():
        return Check("hca", False, f"no HCA {name}", todo)
    if gid is None:
        return Check("hca", True, f"{name} is here", todo)
    entry = port / "gids" / str(gid)
    value = entry.read_text().strip() if entry.exists() else ""
    return Check("hca", bool(value.strip("0:")), f"{name} GID {gid} is {value or 'missing'}", todo)


def _ports(place: Place) -> Check:
    wanted = [(place.config.host, place.config.port),
              (place.config.master_host, place.config.master_port)]  # fmt: skip
    taken = [why for host, port in wanted if (why := _bindable(host, port))]
    says = "; ".join(taken) or " and ".join(f"{host}:{port} free" for host, port in wanted)
    return Check("ports", not taken, says, "`ss -ltnp` shows who listens: stop it, or change ports")


def _stale(place: Place) -> Check:
    found = processes.members(place.request["name"])
    says = "; ".join(f"pid {each.pid} of {each.incarnation}" for each in found) or "none"
    return Check("no such engine", not found, says, "`sentinel-engine stop` the old one first")


def _state(place: Place) -> Check:
    folder = Path(place.request["state"])
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    well = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    says = f"{existing} is {'' if well else 'not '}a writable folder"
    return Check("state", well, says, f"let this user write {folder}")


def all_checks(request: dict[str, Any]) -> Iterator[Check]:
    """Every check of a node, in the order in which an operator repairs things."""
    python = f"{sys.executable}, host {socket.gethostname()}"
    yield Check("reachable", True, python)
    config = parse_config(request["settings"])
    try:
        found = tables(config, request["ranks"])
    except (OSError, ValueError) as error:
        yield Check("model", False, f"{config.model}: {error}", "copy or mount the model")
        found = ()
    place = Place(request, config, found)
    some: list[Callable[[Place], Check]] = [_stale, _engine, _state, _address]
    some += [_hca] if request["hca"] else []
    some += [_ports] if request["head"] else []
    some += [_model, _slice, _probe] if found else []
    some += [_memlock, _memory]
    for check in some:
        yield check(place)
