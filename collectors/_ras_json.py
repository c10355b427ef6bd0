"""JSON answers of NCCL's RAS service (2.28.7 and later) and its monitor events, as concatenated objects."""

import json
from collections.abc import Iterator
from typing import Any

from sentinel.collector import Context
from sentinel.collectors._machine import date_in
from sentinel.model.observation import Origin, Ras, RasComm, RasRank

MAX_RANKS = 65_536
MAX_ANSWERS = 10_000


def read_json(text: str, context: Context) -> Iterator[Ras]:
    """Every JSON object in the text: status answers and monitor events, which follow each other without commas."""
    decoder, at, given = json.JSONDecoder(), text.find("{"), 0
    while 0 <= at < len(text) and given < MAX_ANSWERS:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if given == 0:
                yield Ras(origin=Origin(context.name, 1), host=context.host, error="the JSON answer is cut or damaged")
            return
        if isinstance(value, dict):
            given += 1
            yield _status(value, context) if "communicators" in value else _json_event(value, context)
        at = text.find("{", end)


def _status(value: dict[str, Any], context: Context) -> Ras:
    comms, garbled = [], False
    for item in _dicts(value.get("communicators")):
        size = _int(item.get("size"))
        ranks = tuple(_rank(entry) for entry in _dicts(item.get("ranks")))
        missing = tuple(_rank(entry) for entry in _dicts(item.get("missing_ranks")))
        bad = size == 0 or any(
            who.rank is not None and not 0 <= who.rank < (size or MAX_RANKS) for who in (*ranks, *missing)
        )
        garbled |= bad
        if not bad:
            comms.append(_json_comm(item, size, ranks, missing))
    dead = {(who.host, who.pid): who for comm in comms for who in comm.missing if who.status == "considered_dead"}
    stamp = value.get("timestamp")
    return Ras(
        origin=Origin(context.name, 1), host=context.host,
        at_s=date_in(stamp) if isinstance(stamp, str) else None,
        comms=tuple(comms), nccl_version=_text(value.get("nccl_version")), dead=tuple(dead.values()), garbled=garbled,
    )  # fmt: skip


def _json_comm(
    item: dict[str, Any], size: int | None, ranks: tuple[RasRank, ...], missing: tuple[RasRank, ...]
) -> RasComm:
    operations = sorted({name for who in ranks for name in who.counts})
    counts = {name: {str(who.rank): who.counts.get(name, 0) for who in ranks} for name in operations}
    mismatch = {name: found for name, found in counts.items() if len(set(found.values())) > 1}
    errors = {"MISMATCH"} if mismatch else set()
    if missing:
        errors.add("INCOMPLETE")
    if any(who.status not in ("", "init") for who in ranks):
        errors.add("ERROR")
    status = "INIT" if any(who.status == "init" for who in ranks) else "RUNNING"
    return RasComm(
        comm_id=_text(item.get("hash")), size=size, status=status, errors=tuple(sorted(errors)),
        ranks=ranks, missing=missing, mismatch=mismatch,
    )  # fmt: skip


def _rank(entry: dict[str, Any]) -> RasRank:
    counts = entry.get("collective_counts")
    status = entry.get("status")
    return RasRank(
        rank=_int(entry.get("rank")), host=_text(entry.get("host")), pid=_int(entry.get("pid")),
        counts={str(name)[:64]: count for name, count in counts.items() if isinstance(count, int)}
        if isinstance(counts, dict)
        else {},
        status=_state(status) if isinstance(status, dict) else "",
    )  # fmt: skip


def _state(status: dict[str, Any]) -> str:
    """One word for the state of a rank: empty when nothing is wrong. init_state 7 = in progress, else an error."""
    for flag in ("considered_dead", "unresponsive", "abort_flag"):
        if status.get(flag) is True:
            return flag
    init = status.get("init_state")
    if init == 7:
        return "init"
    if init not in (0, None) or status.get("async_error") not in (0, None, 7):
        return f"error init={init} async={status.get('async_error')}"
    return ""


def _json_event(value: dict[str, Any], context: Context) -> Ras:
    peer = value.get("peer")
    known: dict[str, Any] = peer if isinstance(peer, dict) else {}
    who = RasRank(
        rank=None, host=_text(known.get("host")) or _text(known.get("addr")), pid=_int(known.get("pid")),
        status=_text(value.get("event")) or "",
    )  # fmt: skip
    stamp = value.get("timestamp")
    return Ras(
        origin=Origin(context.name, 1), host=context.host, at_s=date_in(stamp) if isinstance(stamp, str) else None,
        dead=(who,) if who.status else (),
    )  # fmt: skip


def _dicts(value: object) -> list[dict[str, Any]]:
    return [item for item in value[:MAX_RANKS] if isinstance(item, dict)] if isinstance(value, list) else []


def _int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return value[:200] if isinstance(value, str) else None
