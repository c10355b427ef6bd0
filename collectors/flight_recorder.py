"""Dumps of torch's flight recorder, versions 1.x to 2.10: JSON, or the pickle that torch writes.

A pickle from a crashed process is hostile until proven otherwise: its opcodes are checked against a list of those that
build plain data before anything is built, and the unpickler refuses every global.
"""

import io
import json
import pickle
import pickletools
import re
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any

from sentinel.collector import Blob, Context, DocumentParser, Sample
from sentinel.model.observation import FlightEntry, FlightGroup, FlightTrace, Observation, Origin, Unavailable

MAX_BYTES = 256 << 20
MAX_OPCODES = 8_000_000
MAX_OPEN_MARKS = 64
MAX_ENTRIES = 100_000
KEPT_PER_GROUP = 256
KEPT_FRAMES = 8
MAX_GROUPS = 4096
MAX_DIMS = 16

_PLAIN_OPCODES = frozenset(
    [
        "PROTO",
        "FRAME",
        "STOP",
        "MARK",
        "POP",
        "POP_MARK",
        "DUP",
        "EMPTY_DICT",
        "EMPTY_LIST",
        "EMPTY_TUPLE",
        "DICT",
        "LIST",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "SETITEM",
        "SETITEMS",
        "APPEND",
        "APPENDS",
        "NONE",
        "NEWTRUE",
        "NEWFALSE",
        "INT",
        "LONG",
        "LONG1",
        "BININT",
        "BININT1",
        "BININT2",
        "FLOAT",
        "BINFLOAT",
        "STRING",
        "BINSTRING",
        "SHORT_BINSTRING",
        "UNICODE",
        "BINUNICODE",
        "SHORT_BINUNICODE",
        "BINUNICODE8",
        "PUT",
        "BINPUT",
        "LONG_BINPUT",
        "MEMOIZE",
        "GET",
        "BINGET",
        "LONG_BINGET",
    ]
)
_KEYS = ("collective_seq_id", "pg_config", "pg_status", "profiling_name", "comm_lib_version", "nccl_version")
_NAME_RANK = re.compile(r"(?:rank[_-]?|trace[_-]?)(\d{1,5})(?=\D*$)")
_STATE_WORDS = frozenset(("scheduled", "started", "completed"))


class Refused(Exception):
    """The dump is not plain data, or larger than allowed."""


class _PlainUnpickler(pickle.Unpickler):
    """Builds dict, list, tuple, str, int, float, bool and None; refuses every name of a class or function."""

    def find_class(self, module: str, name: str) -> Any:
        raise Refused(f"names {module[:60]}.{name[:60]}, which plain data never does")

    def persistent_load(self, _pid: object) -> Any:
        raise Refused("refers to objects outside the file")


def load_plain_pickle(data: bytes) -> object:
    """The plain data in a pickle; raises `Refused` for anything else, without having run or built it."""
    _check_opcodes(data)
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except Refused:
        raise
    except Exception as error:
        # Damaged pickles raise almost anything (struct, key, unicode, memory errors): all mean the same here.
        raise Refused(f"damaged pickle ({type(error).__name__})") from None


def _check_opcodes(data: bytes) -> None:
    """A memo index far beyond the number of opcodes would make the unpickler allocate for it: refused as well."""
    marks = count = 0
    try:
        for opcode, argument, _ in pickletools.genops(data):
            count += 1
            if opcode.name not in _PLAIN_OPCODES:
                raise Refused(f"uses the opcode {opcode.name}, which plain data never does")
            marks = max(0, marks + _MARK_STEP.get(opcode.name, 0))
            put = opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and isinstance(argument, int) and argument > count
            if put or count > MAX_OPCODES or marks > MAX_OPEN_MARKS:
                raise Refused("is nested or referenced more deeply than a dump is")
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"damaged pickle ({type(error).__name__})") from None


_MARK_STEP = {"MARK": 1, **dict.fromkeys(("POP_MARK", "DICT", "LIST", "TUPLE", "SETITEMS", "APPENDS"), -1)}


def trace_of(value: object, context: Context) -> FlightTrace:
    """The trace in a loaded dump; what has an unexpected type is left out. Raises `Refused` for another document."""
    if not isinstance(value, dict) or not any(key in value for key in ("entries", "pg_config", "pg_status")):
        raise Refused("is no flight-recorder dump")
    kept: dict[str, deque[FlightEntry]] = defaultdict(lambda: deque(maxlen=KEPT_PER_GROUP))
    entries = value.get("entries")
    for item in entries[-MAX_ENTRIES:] if isinstance(entries, list) else ():
        if isinstance(item, dict) and (entry := _entry(item)) is not None and len(kept) < MAX_GROUPS:
            kept[entry.group].append(entry)
    newest = max((entry.created_ns or 0 for group in kept.values() for entry in group), default=0)
    rank = _NAME_RANK.search(re.sub(r"\.(?:json|pickle|pkl|gz|zst)", "", context.name.rpartition("/")[2]))
    host = value.get("host_name")
    return FlightTrace(
        origin=Origin(context.name),
        at_s=newest / 1e9 if newest else None,
        host=host[:255] if isinstance(host, str) and host else context.host,
        rank=int(rank[1]) if rank else None,
        version=str(value.get("version", ""))[:40],
        groups=_groups(value),
        entries=tuple(sorted((entry for group in kept.values() for entry in group), key=lambda e: e.created_ns or 0)),
    )


def _groups(value: dict[Any, Any]) -> tuple[FlightGroup, ...]:
    config, status = value.get("pg_config"), value.get("pg_status")
    configs: dict[Any, Any] = config if isinstance(config, dict) else {}
    states: dict[Any, Any] = status if isinstance(status, dict) else {}
    names = list(dict.fromkeys([*configs, *states]))[:MAX_GROUPS]
    return tuple(_group(str(name)[:80], configs.get(name), states.get(name)) for name in names)


def _group(name: str, config: object, status: object) -> FlightGroup:
    known: dict[Any, Any] = config if isinstance(config, dict) else {}
    state: dict[Any, Any] = status if isinstance(status, dict) else {}
    ranks = known.get("ranks")
    found = re.findall(r"\d{1,7}", ranks[:500_000]) if isinstance(ranks, str) else ranks
    return FlightGroup(
        name=name,
        desc=str(known.get("desc", ""))[:80],
        ranks=tuple(rank for item in found or () if (rank := _int(item)) is not None)
        if isinstance(found, list)
        else (),
        last_enqueued=_int(state.get("last_enqueued_collective")),
        last_started=_int(state.get("last_started_collective")),
        last_completed=_int(state.get("last_completed_collective")),
    )


def _entry(item: dict[Any, Any]) -> FlightEntry | None:
    """Point-to-point entries carry the sequence number of their own counter."""
    group = item.get("process_group")
    name = group[0] if isinstance(group, (list, tuple)) and group else item.get("pg_id", item.get("pg_name", ""))
    seq = _int(item.get("p2p_seq_id" if item.get("is_p2p") is True else "collective_seq_id"))
    if seq is None:
        return None
    state = item.get("state")
    return FlightEntry(
        group=str(name)[:80],
        seq=seq,
        op=str(item.get("profiling_name", ""))[:80],
        in_sizes=_sizes(item.get("input_sizes")),
        out_sizes=_sizes(item.get("output_sizes")),
        dtypes=_texts(item.get("input_dtypes")),
        state=state if isinstance(state, str) and state in _STATE_WORDS else "",
        created_ns=_int(item.get("time_created_ns")),
        frames=_frames(item.get("frames")),
    )


def _sizes(value: object) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(
        tuple(size for item in dims[:MAX_DIMS] if (size := _int(item)) is not None)
        for dims in value[:MAX_DIMS]
        if isinstance(dims, (list, tuple))
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(str(item)[:40] for item in value[:MAX_DIMS]) if isinstance(value, (list, tuple)) else ()


def _frames(value: object) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)):
        return ()
    return tuple(
        f"{item.get('name', '')} ({item.get('filename', '')}:{item.get('line', '')})"[:300]
        for item in value[:KEPT_FRAMES]
        if isinstance(item, dict)
    )


def _int(value: object) -> int | None:
    """An integer, also one printed as text; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if abs(value) < 1 << 63 else None
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        return int(value)
    return None


def _recognise(sample: Sample) -> bool:
    head = sample.head[:65536]
    start = head.lstrip()[:1]
    if start == "{":
        return '"entries"' in head and any(f'"{key}"' in head for key in _KEYS)
    return start in ("\ufffd", "\x80") and sum(key in head or key in sample.tail for key in _KEYS) >= 2


def _parse(blob: Blob, context: Context) -> Iterator[Observation]:
    data = bytearray()
    for chunk in blob.chunks():
        data += chunk
        if len(data) > MAX_BYTES:
            yield _unavailable(context, f"is larger than {MAX_BYTES >> 20} MiB")
            return
    try:
        yield trace_of(_load(bytes(data)), context)
    except Refused as reason:
        yield _unavailable(context, str(reason))


def _load(data: bytes) -> object:
    if data.lstrip()[:1] != b"{":
        return load_plain_pickle(data)
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise Refused(f"damaged JSON ({type(error).__name__})") from None


def _unavailable(context: Context, reason: str) -> Unavailable:
    return Unavailable(
        origin=Origin(context.name), host=context.host, source="flight recorder", reason=f"the dump {reason}"
    )


PARSER = DocumentParser(name="flight_recorder", recognise=_recognise, parse=_parse)
