"""Which host a document speaks for: from its content, else its folder, else (last) its file name.

Content that names a host: NCCL prefixes, journal frames, syslog lines, `uname`, shell prompts. A folder belongs to
the one host that the documents below it name; a folder without such documents belongs to a host if its name looks like
one (`node3`, `ip-10-0-0-7`) and not like a kind of evidence (`rank0`, `stacks`, `start2`), or if it lies beside
folders that each hold tables of a whole machine. With one host only, everything belongs to it.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sentinel.collector import Line

_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}"
_NCCL = re.compile(rf"(?<!\S)({_NAME}):\d+:\d+ \[\d+\] ")
_SYSLOG = re.compile(
    rf"^(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{{4}}-\d\d-\d\dT[\d:.,]+(?:Z|[+-]\d\d:?\d\d)) "
    rf"({_NAME}) (?:kernel|[\w./@-]{{1,64}}(?:\[\d+\])?):"
)
_UNAME = re.compile(rf"^Linux ({_NAME}) \d+\.\d+\.\d")
_PROMPT = re.compile(rf"^\[?[a-z_][\w-]{{0,31}}@({_NAME})[: ][^$#\n]{{0,200}}[$#] ")
_HOSTNAME = re.compile(rf"^(?:Static hostname: *|HOSTNAME=)({_NAME})\s*$")
_CONTAINER = re.compile(r"^[0-9a-f]{12}$")
_ADDRESS = re.compile(r"^\d{1,3}(?:\.\d{1,3}){3}$")

_NUMBERED = re.compile(r"^(?P<stem>(?=[a-z0-9.-]*[a-z])[a-z0-9.-]*?)-?(?P<number>\d+)$")
_KINDS = frozenset(
    (
        "after", "attempt", "before", "boot", "bt", "callstack", "capture", "case", "collect", "core", "dp", "dump",
        "ep", "evidence", "frame", "gdb", "gid", "incident", "iter", "job", "local", "localrank", "log", "logs", "m",
        "metric", "metrics", "nccl", "part", "pass", "pid", "pp", "prom", "proc", "ps", "py-spy", "pyspy", "r",
        "rank", "ranks", "replay", "restart", "round", "run", "sample", "scrape", "scrapes", "set", "shard", "snap",
        "snapshot", "stack", "stacks", "stage", "start", "step", "t", "take", "task", "test", "thread", "threads",
        "tid", "time", "tp", "trace", "try", "v", "vol", "wave",
    )
)  # fmt: skip
"""Words that, with a number, name a kind or a part of evidence and never a host."""
_UNSURE = frozenset(
    (
        "container", "d", "decode", "dev", "device", "engine", "gpu", "group", "instance", "p", "pod", "prefill",
        "replica", "s", "server", "worker", "w",
    )
)  # fmt: skip
"""Words that, with a number, may name a host or a process: folders need more than the name."""

MACHINE_SOURCES = frozenset(
    (
        "host_counters", "kernel_log", "nvidia_dmon", "nvidia_smi_csv", "nvidia_smi_query", "nvidia_smi_table",
        "process_table", "show_gids", "sockets", "uptime",
    )
)  # fmt: skip
"""Parsers whose documents describe a whole machine."""
LOG_SOURCES = frozenset(("kernel_log", "packaged_log", "sglang_log", "trtllm_log", "vllm_log"))
"""Parsers of logs of which a host has its own: several of them with numbered names suggest several hosts."""


@dataclass(frozen=True, slots=True)
class Clue:
    """What is known of one document: its name, hosts named in its content, whether it is a table of a whole machine,
    and which of `LOG_SOURCES` read it."""

    name: str
    hosts: Counter[str]
    machine: bool = False
    logs: frozenset[str] = frozenset()


def hosts_in(lines: Iterable[Line]) -> Counter[str]:
    """Hosts that lines name as their own, with the number of lines."""
    seen: Counter[str] = Counter()
    for line in lines:
        if line.host:
            seen[short(line.host)] += 1
        if (named := _named(line.text)) is not None:
            seen[short(named)] += 1
    return seen


def _named(text: str) -> str | None:
    if " NCCL " in text[:400] and (found := _NCCL.search(text[:400])):
        return found[1]
    lead = text[:400]
    if ":" in lead and (found := _SYSLOG.match(lead)):
        return found[1]
    if "@" in lead and (found := _PROMPT.match(lead)):
        return found[1]
    if lead.startswith("Linux ") and (found := _UNAME.match(lead)):
        return found[1]
    if "ostname: " in lead or lead.startswith("HOSTNAME="):
        found = _HOSTNAME.match(lead.strip())
        return found[1] if found else None
    return None


def short(host: str) -> str:
    """A host name without its domain; an address stays whole."""
    return host if _ADDRESS.match(host) else host.split(".", 1)[0]


def looks_like_host(name: str) -> bool:
    """Whether a folder name alone suggests a host: an address or a numbered word that is no kind of evidence."""
    return _stem(name) is not None and _stem(name) not in _UNSURE


def _stem(name: str) -> str | None:
    """The word before the number of a possible host name; None for what is never one."""
    text = name.lower()
    if _ADDRESS.match(text):
        return "address"
    found = _NUMBERED.match(text.split(".", 1)[0])
    if found is None or (words := found["stem"].strip("-").split("-"))[-1] in _KINDS:
        return None
    return words[-1] or "number"


def _may_be_host(name: str) -> bool:
    """Whether a folder that holds tables of a machine may be named after it."""
    return name.lower() not in _KINDS and (_stem(name) is not None or not name[-1:].isdigit())


class Hosts:
    """Answers `of(name)` for every document of a load."""

    def __init__(self, clues: Iterable[Clue]) -> None:
        self._clues = {clue.name: clue for clue in clues}
        self.alias = _aliases(self._clues.values())
        self._content = {name: self._renamed(clue.hosts) for name, clue in self._clues.items()}
        self._folders = self._folder_hosts()
        self.known = sorted(
            {host for hosts in self._content.values() for host in hosts}
            | {host for host in self._folders.values() if host is not None}
        )
        self._by_name = self._file_name_hosts()
        self.known = sorted({*self.known, *self._by_name.values()})

    def of(self, name: str) -> str | None:
        """The host of a document; None when the evidence does not say or the document speaks of several."""
        content = self._content.get(name, frozenset())
        if len(content) == 1:
            return next(iter(content))
        if content:
            return None
        return self.fallback(name)

    def fallback(self, name: str) -> str | None:
        """The host by folder, by being the only one, or by file name: for what names none itself."""
        for folder in _folders(name):
            if self._folders.get(folder) is not None:
                return self._folders[folder]
        if name in self._by_name:
            return self._by_name[name]
        return self.known[0] if len(self.known) == 1 else None

    def _renamed(self, hosts: Counter[str]) -> frozenset[str]:
        total = sum(hosts.values())
        # One odd line (a quoted log line of another host) does not make a document speak for two.
        return frozenset(self.alias.get(host, host) for host, count in hosts.items() if count * 20 >= total)

    def _folder_hosts(self) -> dict[str, str | None]:
        below: dict[str, set[str]] = defaultdict(set)
        for name, content in self._content.items():
            for folder in _folders(name):
                below[folder] |= content
        siblings = self._machine_folders()
        chosen: dict[str, str | None] = {}
        for folder, hosts in below.items():
            base = _base(folder)
            if len(hosts) == 1:
                chosen[folder] = next(iter(hosts))
            elif looks_like_host(base) or folder in siblings:
                chosen[folder] = short(base)
        return chosen

    def _machine_folders(self) -> frozenset[str]:
        """Folders that lie beside each other and each hold tables of a whole machine (GPU, kernel, processes)."""
        holding = {folders[-1] for name, clue in self._clues.items() if clue.machine and (folders := _folders(name))}
        named = frozenset(folder for folder in holding if _may_be_host(_base(folder)))
        return named if len(named) > 1 else frozenset()

    def _file_name_hosts(self) -> dict[str, str]:
        chosen: dict[str, str] = {}
        open_names = [name for name, hosts in self._content.items() if not hosts and self._unplaced(name)]
        for name in open_names:
            named = {
                host for host in self.known if re.search(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])", name)
            }
            if len(named) == 1:
                chosen[name] = named.pop()
        for stem, members in self._families(name for name in open_names if name not in chosen).items():
            held = [frozenset().union(*(self._clues[name].logs for name in names)) for names in members.values()]
            alike = Counter(kind for kinds in held for kind in kinds)
            if max(alike.values(), default=0) > 1 and stem not in self._refuted:
                chosen.update({name: lead for lead, names in members.items() for name in names})
        return chosen

    def _families(self, names: Iterable[str]) -> dict[str, dict[str, list[str]]]:
        """Documents by the word and by the numbered word that their file names begin with."""
        families: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for name in names:
            lead = re.split(r"[._]", name.rsplit("/", 1)[-1], maxsplit=1)[0]
            if (stem := _stem(lead)) is not None:
                families[stem][lead].append(name)
        return families

    @property
    def _refuted(self) -> frozenset[str]:
        """Words that number files and not hosts: differently numbered files name the same host in their content."""
        refuted = set()
        for stem, members in self._families(self._content).items():
            named = [{host for name in names for host in self._content[name]} for names in members.values()]
            found = Counter(host for hosts in named for host in hosts)
            if any(count > 1 for count in found.values()):
                refuted.add(stem)
        return frozenset(refuted)

    def _unplaced(self, name: str) -> bool:
        return all(self._folders.get(folder) is None for folder in _folders(name))


def _aliases(clues: Iterable[Clue]) -> Mapping[str, str]:
    """A container's random name stands for its machine when one container and one machine are named."""
    named = {host for clue in clues for host in clue.hosts}
    containers = {host for host in named if _CONTAINER.match(host) and not host.isalpha()}
    machines = named - containers
    if len(containers) == 1 and len(machines) == 1:
        return {containers.pop(): machines.pop()}
    return {}


def _contains(name: str, host: str) -> bool:
    return re.search(rf"(?<![A-Za-z0-9]){re.escape(host)}(?![A-Za-z0-9])", name) is not None


def _folders(name: str) -> list[str]:
    """Folders around a document, innermost first; an archive counts as a folder."""
    parts = re.split(r"[/!]", name)[:-1]
    return ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _base(folder: str) -> str:
    """Last component of a folder name, without the endings of archives."""
    return re.sub(r"(?:\.(?:tar|tgz|gz|zst))+$", "", folder.rsplit("/", 1)[-1])
