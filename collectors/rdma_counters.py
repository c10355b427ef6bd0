"""RDMA devices: sysfs counters and port states in any dump form, `ibstat`, `ibv_devinfo`, `rdma link|statistic`.

Accepted per line: `mlx5_0 port_rcv_data 12`, `mlx5_0/hw_counters/x 12`, `/sys/class/infiniband/mlx5_0/ports/1/...: 12`
(`grep .`), and `==> path <==` with the value below. A time header, or a counter that comes again, begins a new sample.
Counter names are taken as they come (they differ by vendor); data counters stay in their units of 4 bytes.
Kernel ABI: `/sys/class/infiniband`; rdma-core 28 to 50, iproute2.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from sentinel.collector import Blob, Context, DocumentParser, Line, Sample
from sentinel.collectors._machine import Sections
from sentinel.model.observation import DeviceCounters

TEXT_CAP = 1024
MAX_DEVICES = 512
MAX_NAMES = 512

_DEVICE = (
    r"(?P<dev>(?:mlx[45]|bnxt_re|irdma|roce[pox]|ib|efa|hfi|qib|rxe|siw|erdma|hns|cxgb|qedr|vmw_pvrdma)[\w.-]{0,40})"
)
_SYSFS = re.compile(r"infiniband/(?P<dev>[\w.-]{1,64})/(?P<rest>[\w./-]{1,200}?)(?:\s*[:=]\s*|\s+|\s*$)(?P<value>.*)$")
_PATH_ROW = re.compile(r"^\s*" + _DEVICE + r"/(?P<rest>[\w./-]{1,200})[\s:=]+(?P<value>\S.*)$")
_WORD_ROW = re.compile(
    r"^\s*" + _DEVICE + r"(?:[:/ ](?P<port>\d{1,2}))?[\s:]+(?P<name>[A-Za-z]\w{2,63})[\s:=]+(?P<value>\S.*)$"
)
_LINK = re.compile(r"^\s*link (?P<dev>[\w.-]{1,64})/(?P<port>\d{1,3}) (?P<rest>.+)$")
_CA = re.compile(r"^\s*(?:CA '(?P<ca>[\w.-]{1,64})'|hca_id:\s*(?P<hca>[\w.-]{1,64}))\s*$")
_PORT = re.compile(r"^\s*(?:Port (?P<a>\d{1,3}):|port:\s*(?P<b>\d{1,3}))\s*$")
_FIELD = re.compile(
    r"^\s+(?P<name>State|Physical state|Rate|Link layer|state|phys_state|link_layer):\s*(?P<value>.{1,80}?)\s*$"
)
_NUMBER = re.compile(r"^-?\d{1,20}(?:\.\d{1,6})?$")
_NUMBERED_STATE = re.compile(r"^\d{1,2}: ?(.+)$")
_PORT_PART = re.compile(r"(?:^|/)ports/(\d{1,3})/")
_NETDEV = re.compile(r"(?:^|/)net/([\w.@-]{1,32})/")
_STATES = {
    "state": "state", "phys_state": "phys_state", "physical_state": "phys_state", "Physical state": "phys_state",
    "State": "state", "Rate": "rate", "rate": "rate", "Link layer": "link_layer", "link_layer": "link_layer",
    "operstate": "operstate", "netdev": "netdev",
}  # fmt: skip
_COUNTERS = re.compile(
    r"port_(?:xmit|rcv)_|local_ack_timeout_err|rx_write_requests|link_downed|out_of_sequence|rnr_nak_retry|symbol_error"
)


@dataclass(slots=True)
class _Device:
    """One device (or a further port of one) in the current sample."""

    line: Line
    values: dict[str, float] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)


class _Reader:
    """Collects the lines of one sample and gives its devices when the next one begins."""

    def __init__(self, context: Context) -> None:
        self.where = Sections(context)
        self.devices: dict[str, _Device] = {}
        self._ca = ""
        self._port = 1
        self._path: re.Match[str] | None = None

    def read(self, line: Line) -> Iterator[DeviceCounters]:
        """Take one line; yields the devices of a finished sample."""
        text = line.text[:TEXT_CAP]
        before = (self.where.at_s, self.where.clock_s)
        if text[:1] in "#=$-" and self._header(text):
            if before != (self.where.at_s, self.where.clock_s):
                yield from self.flush(before)
            return
        for device, name, value in self._pairs(text):
            known = self.devices.get(device)
            if known is not None and name in known.values and _NUMBER.match(value):
                yield from self.flush(before)
            self._note(device, name, value, line)

    def _header(self, text: str) -> bool:
        """A time, or the path whose value stands in the next line."""
        found = _SYSFS.search(text)
        self._path = found
        return self.where.note(text) or found is not None or text.startswith("#")

    def _pairs(self, text: str) -> Iterator[tuple[str, str, str]]:
        """(device, counter or state, value) that a line states."""
        if (found := _SYSFS.search(text)) or (found := _PATH_ROW.match(text)):
            if found["value"].strip():
                yield from self._of_path(found["dev"], found["rest"], found["value"].strip())
            return
        if self._path is not None and text.strip():
            yield from self._of_path(self._path["dev"], self._path["rest"].strip("/ "), text.strip())
            return
        if (found := _LINK.match(text)) is not None:
            words = found["rest"].split()
            for name, value in zip(words[::2], words[1::2], strict=False):
                yield _port_name(found["dev"], int(found["port"])), name, value
        elif (found := _CA.match(text)) is not None:
            self._ca, self._port = found["ca"] or found["hca"], 1
        elif self._ca and (found := _PORT.match(text)) is not None:
            self._port = int(found["a"] or found["b"])
        elif self._ca and (found := _FIELD.match(text)) is not None:
            yield _port_name(self._ca, self._port), found["name"], found["value"]
        elif (found := _WORD_ROW.match(text)) is not None:
            yield _port_name(found["dev"], int(found["port"] or 1)), found["name"], found["value"].strip()

    def _of_path(self, device: str, rest: str, value: str) -> Iterator[tuple[str, str, str]]:
        port = _PORT_PART.search(rest)
        netdev = _NETDEV.search(rest)
        name = _port_name(device, int(port[1]) if port else 1)
        if "/gids/" in rest or "/gid_attrs/" in rest:
            return
        if netdev is not None:
            yield name, "netdev", netdev[1]
        yield name, rest.rpartition("/")[2], value

    def _note(self, device: str, name: str, value: str, line: Line) -> None:
        if device not in self.devices:
            if len(self.devices) >= MAX_DEVICES:
                return
            self.devices[device] = _Device(line)
        known = self.devices[device]
        if name in _STATES:
            numbered = _NUMBERED_STATE.match(value)
            known.states[_STATES[name]] = _plain_state(numbered[1] if numbered else value)
        elif _NUMBER.match(value) and len(known.values) < MAX_NAMES:
            known.values[name] = float(value)

    def flush(self, at: tuple[float | None, float | None] | None = None) -> Iterator[DeviceCounters]:
        """Give what the current sample holds; `at` is the time that was valid for it."""
        for device, known in self.devices.items():
            if not known.values and not known.states:
                continue
            placed = self.where.where(known.line)
            if at is not None and at != (None, None):
                placed["at_s"], placed["clock_s"] = at
            yield DeviceCounters(
                **placed, device=device, family="rdma", values=dict(known.values), states=dict(known.states)
            )
        self.devices.clear()


def _port_name(device: str, port: int) -> str:
    """The first port goes by its device's name, as most devices have one only."""
    return device if port <= 1 else f"{device}:{port}"


def _plain_state(value: str) -> str:
    """One spelling for the port states of sysfs, ibstat, ibv_devinfo and rdma.

    >>> _plain_state("PORT_ACTIVE (4)"), _plain_state("Down")
    ('ACTIVE', 'DOWN')
    """
    word = value.strip().removeprefix("PORT_").partition(" (")[0]
    return word.upper() if word.upper() in ("ACTIVE", "DOWN", "INIT", "ARMED", "POLLING", "DISABLED") else word[:80]


def _recognise(sample: Sample) -> bool:
    lines = [line[:TEXT_CAP] for line in sample.head[:16384].split("\n")]
    said = [line for line in lines if line.strip() and not line.startswith("#")]
    if not said:
        return False
    if any(_CA.match(line) for line in said[:5]):
        return True
    rows = sum(1 for line in said if _is_row(line))
    return rows * 2 >= len(said)


def _is_row(line: str) -> bool:
    if "/sys/class/infiniband/" in line or "infiniband/" in line[:120]:
        return _SYSFS.search(line) is not None and "/gids/" not in line
    if _PATH_ROW.match(line) or _LINK.match(line):
        return True
    found = _WORD_ROW.match(line)
    return found is not None and (
        _COUNTERS.search(found["name"]) is not None or _NUMBER.match(found["value"]) is not None
    )


def _parse(blob: Blob, context: Context) -> Iterator[DeviceCounters]:
    reader = _Reader(context)
    for line in blob.lines():
        yield from reader.read(line)
    yield from reader.flush()


PARSER = DocumentParser(name="rdma_counters", recognise=_recognise, parse=_parse)
