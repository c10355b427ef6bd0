"""NCCL debug lines other than COLL: life cycle, start-up stages, transport errors.

Source: NCCL 2.18 to 2.30 (`src/debug.cc`, `src/init.cc`, net_ib). The prefix holds the host name up to its first dot;
its host and process id are trusted, those in a file name are not (`NCCL_DEBUG_FILE` without `%p` mixes processes).
"""

import re
from collections import Counter
from typing import Literal

from sentinel.collectors._nccl_stream import stamp_s
from sentinel.model.observation import NcclComm, NcclNote, Observation, Origin

TEXT_CAP = 4096
MAX_NOTES_PER_TOPIC = 2_000

FORMATS = {
    "nccl.prefix": (
        r"^(?:\[(?P<ts>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\] )?(?P<host>[^\s:]+):(?P<pid>\d{1,18}):"
        r"(?P<tid>\d{1,18}) "
        r"(?:\[(?P<dev>-?\d{1,18})\] )?(?:(?P<rel>\d{1,18}\.\d+) )?(?:(?P<src>[^\s:]+:\d+)(?: \((?P<func>[^)]*)\))? )?"
        r"NCCL (?P<level>INFO|WARN|CALL|TRACE|ABORT) (?P<msg>.*)$"
    ),
    "nccl.init": (
        r"(?:\[Rank \d+\] )?(?:(?P<func>ncclComm\w+) )?comm (?P<comm>0x[0-9a-fA-F]+) rank (?P<rank>\d{1,18}) "
        r"n[rR]anks (?P<nranks>\d{1,18}) cudaDev (?P<dev>\d{1,18})(?: nvmlDev (?P<nvml>\d{1,18}))? busId "
        r"(?P<bus>[0-9a-fA-F]+)"
        r"(?: parent (?P<parent>0x[0-9a-fA-F]+|\(nil\)) (?:(?:splitCount|childCount) (?P<child>\d{1,18}) )?"
        r"color (?P<color>-?\d{1,18}) key (?P<key>-?\d{1,18}))?(?: commId (?P<id>0x[0-9a-fA-F]+))? ?- "
        r"(?P<ev>Init START|Init COMPLETE|Destroy COMPLETE|Abort START|Abort COMPLETE|Revoke START|Revoke COMPLETE)"
    ),
    "nccl.coll": (
        r"NCCL INFO (?P<op>[A-Z]\w+): opCount (?P<opcount>[0-9a-fA-F]+) sendbuff (?P<send>0x[0-9a-fA-F]+|\(nil\)) "
        r"recvbuff (?P<recv>0x[0-9a-fA-F]+|\(nil\)) count (?P<count>\d{1,18}) datatype (?P<dtype>\d{1,18}) op "
        r"(?P<redop>\d{1,18}) "
        r"root (?P<root>-?\d{1,18}) comm (?P<comm>0x[0-9a-fA-F]+) \[nranks=(?P<nranks>\d{1,18})\] "
        r"stream (?P<stream>0x[0-9a-fA-F]+|\(nil\))(?: task (?P<task>\d{1,18}) globalrank (?P<grank>\d{1,18}))?"
    ),
    "nccl.ibcomp": (
        r"NET/IB(?:/GIN)? ?: Got completion from peer (?P<peer>\S+) with (?:error |status=)"
        r"(?:(?P<name>IBV_WC_\w+|UNKNOWN_STATUS)\()?(?P<status>\d{1,18})\)?,? opcode[ =](?:\w+\()?"
        r"(?P<opcode>\d{1,18})\)?"
        r"(?:,? (?:len|reqSize)[ =]\d+,?)? vendor[ _]err[ =](?P<vendor>\d{1,18})"
        r"(?: \((?P<req>[^)]*)\)| req_type=(?P<req2>\w+))?(?P<rest>.*?)(?: hca (?P<hca>\S+))?$"
    ),
    "nccl.ibasync": (
        r"NET/IB : (?:(?P<dev>[^\s:]+):(?P<port>\d{1,18}) )?(?P<what>async fatal event|Got async (?:error )?event|"
        r"Got non-fatal async event|GID table changed|speed change detected|unknown event type)(?P<rest>.*)$"
    ),
}
"""Patterns of the formats as printed; the prefix is matched without its `^` where other writers' text stands before."""

_PREFIX = re.compile(
    r"(?P<host>[^\s:\[\]()|]{1,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) (?:\[(?P<dev>-?\d{1,4})\] )?"
    r"(?:\d{1,12}\.\d{1,9} )?(?P<src>\S{1,200}(?: \([^)]{0,200}\))? )?$"
)
_LEVEL = re.compile(r"NCCL (INFO|WARN|ABORT) ")
_INIT = re.compile(FORMATS["nccl.init"])
_COMPLETION = re.compile(FORMATS["nccl.ibcomp"])
_ASYNC = re.compile(FORMATS["nccl.ibasync"])
_GIDS = re.compile(r"localGid (?P<local>\S+) remoteGids? ?(?P<remote>\S+)")
_VERSION = re.compile(r"NCCL version (\d+\.\d+(?:\.\d+)?)(?:\+cuda(\d+\.\d+))?")
_CHANNEL = re.compile(
    r"^Channel \d+(?:/\d+)?(?:/\d+)? ?: (\d{1,18})\[\S+\] -> (\d{1,18})\[\S+\](?: \[(?:send|receive)\])? via (\S+)"
)
_CLOSED = re.compile(
    r"Connection closed by (?:remote peer (?P<peer>\S+)|localRank (?P<local>\d{1,18}))|"
    r"Connection (?:reset|closed) by peer|Broken pipe"
)
_CALL = re.compile(r"Call to (?P<call>\S+)(?: .{0,200}?)? ?(?:failed|returned)\b")
_CUDA = re.compile(r"Cuda failure (?:(?P<code>\d{1,18}) )?'(?P<text>[^']{0,200})'")
_RESULT = re.compile(
    r"^(?:\S{1,200}:\d+|\S{1,100})(?: \([^)]{0,200}\))? -> (?P<code>\d{1,3})(?: \[(?P<thread>[^\]]{1,40})\])?$"
)
_NETWORK = re.compile(
    r"^(?:Using network (?P<name>\S+)|NET/(?P<kind>\w+) ?: (?:Using (?P<devices>.{0,400})|No device found))"
)
_HCA = re.compile(r"\[\d+\]([\w.-]+):\d+/(\w+)")

EVENTS: dict[str, Literal["init_start", "init_complete", "destroy", "abort", "revoke"]] = {
    "Init START": "init_start", "Init COMPLETE": "init_complete", "Destroy COMPLETE": "destroy",
    "Abort START": "abort", "Abort COMPLETE": "abort", "Revoke START": "revoke", "Revoke COMPLETE": "revoke",
}  # fmt: skip

Topic = Literal[
    "version", "bootstrap", "network", "channel", "connected", "ras",
    "ib_completion", "ib_async", "peer_closed", "call_failed", "cuda_failure", "mismatch", "proxy", "result", "other",
]  # fmt: skip
Found = tuple[Topic, dict[str, str]]


class NoteReader:
    """Turns the lines of one file into observations; keeps only what bounds their number."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._given: Counter[str] = Counter()
        self._channels: set[tuple[str, str, str]] = set()

    def read(self, text: str, number: int, at_s: float | None = None) -> Observation | None:
        """The observation that one line makes; None for chatter. `at_s` holds when the line prints no time."""
        text = text[:TEXT_CAP]
        level = _LEVEL.search(text)
        if level is None:
            return self._bare_version(text, number, at_s)
        who = _PREFIX.search(text[max(0, level.start() - 512) : level.start()])
        if who is None:
            return self._bare_version(text, number, at_s)
        stamp = stamp_s(text[: level.start()].encode("utf-8", "replace"))
        host, pid, message = who["host"], int(who["pid"]), text[level.end() :]
        origin, at_s = Origin(self.file, number), stamp if stamp is not None else at_s
        if (found := _INIT.search(message)) is not None:
            return _comm(found, origin, at_s, host, pid)
        warn = level[1] != "INFO"
        topic_fields = _warned(message) if warn else self._informed(message, host, who["pid"])
        if topic_fields is None:
            return None
        topic, fields = topic_fields
        self._given[topic] += 1
        if self._given[topic] > MAX_NOTES_PER_TOPIC:
            return None
        if who["src"]:
            fields["source"] = who["src"].strip()
        return NcclNote(
            origin=origin, at_s=at_s, host=host, pid=pid, level="warn" if warn else "info", topic=topic,
            text=message[:512].strip(), fields=fields,
        )  # fmt: skip

    def _informed(self, message: str, host: str, pid: str) -> Found | None:
        """INFO lines that matter: the rest of a start-up is topology chatter."""
        if (found := _CHANNEL.match(message)) is not None:
            key = (host, pid, found[3])
            if key in self._channels or len(self._channels) >= MAX_NOTES_PER_TOPIC:
                return None
            self._channels.add(key)
            return "channel", {"via": found[3]}
        return _informed(message) or _warned_topic(message)

    def _bare_version(self, text: str, number: int, at_s: float | None) -> NcclNote | None:
        """`NCCL version X` at level VERSION prints no prefix, hence no process."""
        found = _VERSION.search(text) if text.lstrip().startswith("NCCL version ") else None
        if found is None:
            return None
        return NcclNote(
            origin=Origin(self.file, number), at_s=at_s, level="info", topic="version", text=text.strip()[:512],
            fields={"version": found[1], "cuda": found[2] or ""},
        )  # fmt: skip


def _comm(found: re.Match[str], origin: Origin, at_s: float | None, host: str, pid: int) -> NcclComm:
    return NcclComm(
        origin=origin, at_s=at_s, host=host, pid=pid, comm=found["comm"], comm_id=found["id"],
        comm_rank=int(found["rank"]), nranks=int(found["nranks"]), event=EVENTS[found["ev"]],
        cuda_dev=int(found["dev"]), bus_id=found["bus"],
        parent=found["parent"] if found["parent"] not in (None, "(nil)") else None,
        color=int(found["color"]) if found["color"] is not None else None,
    )  # fmt: skip


def _informed(message: str) -> Found | None:
    if message.startswith("Bootstrap"):
        return "bootstrap", {}
    if (found := _NETWORK.match(message)) is not None:
        devices = ",".join(name for name, _ in _HCA.findall(found["devices"] or ""))
        return "network", {"network": found["name"] or found["kind"], "devices": devices}
    if message.startswith("Connected all"):
        return "connected", {}
    if (found := _VERSION.match(message)) is not None:
        return "version", {"version": found[1], "cuda": found[2] or ""}
    if (found := _RESULT.match(message)) is not None:
        return "result", {"code": found["code"], "thread": found["thread"] or ""}
    if message.startswith("RAS"):
        return "ras", {}
    if message.startswith(("ncclCommWindowRegister", "ncclCommRegister", "HINT")):
        return "other", {"call": message.partition(":")[0][:64]}
    return None


def _warned(message: str) -> Found:
    """Every WARN line is kept; what is not recognised has the topic `other`."""
    return _warned_topic(message) or ("other", {})


def _warned_topic(message: str) -> Found | None:
    if (found := _COMPLETION.search(message)) is not None:
        return "ib_completion", _completion_fields(found)
    if (found := _ASYNC.search(message)) is not None:
        event = found["rest"].lstrip(": ").partition(" on ")[0].partition("(")[0].strip(" :")
        return "ib_async", {"device": found["dev"] or "", "port": found["port"] or "", "event": event or found["what"]}
    if "mismatch" in message.lower():
        return "mismatch", {}
    if (found := _CLOSED.search(message)) is not None:
        return "peer_closed", {"peer": found["peer"] or "", "local_rank": found["local"] or ""}
    if (found := _CUDA.search(message)) is not None:
        return "cuda_failure", {"code": found["code"] or "", "error": found["text"]}
    if (found := _CALL.search(message)) is not None:
        return "call_failed", {"call": found["call"]}
    if message.startswith("[Proxy"):
        return "proxy", {}
    return None


def _completion_fields(found: re.Match[str]) -> dict[str, str]:
    gids = _GIDS.search(found["rest"])
    return {
        "peer": found["peer"], "status": found["status"], "opcode": found["opcode"], "vendor": found["vendor"],
        "request": found["req"] or found["req2"] or "", "device": found["hca"] or "",
        "local_gid": gids["local"].lstrip(":") if gids else "",
        "remote_gid": gids["remote"].lstrip(":") if gids else "",
    }  # fmt: skip
