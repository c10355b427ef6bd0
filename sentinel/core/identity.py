"""Who is who: joins hosts, pids, process titles, rank tags and communicator ranks into global ranks.

Sources, strongest first: the rank of a process in the largest communicator it belongs to (NCCL init lines), rank tags
in its process title or log prefix, the rank that the source itself printed, its seat in RAS. Parallel coordinates
become a global rank as the engines number them: SGLang's TP index is global inside a pipeline stage; vLLM counts dp,
then pp, then tp.

The order of evidence decides nothing. Statements on one process that contradict each other (two containers that both
have a process 7) are all dropped: then each observation speaks for itself only.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sentinel.model.observation import NcclComm, Notice, Observation, Ras, Stack, Tags
from sentinel.model.observation import ProcessTable as _ProcessTable

Process = tuple[str | None, int]
"""(host, pid); host None where the evidence names none."""

WORLD_MAX = 65_536
"""No engine has more ranks; larger numbers in evidence are garbage."""

_TAG = re.compile(r"(?<![A-Z])(DP|PP|TP|EP)(\d{1,5})(?!\d)")
_RANK_ARGUMENT = re.compile(r"--role rank --rank (\d{1,5})\b")


def tags_of(text: str) -> Tags | None:
    """Parallel coordinates printed in a process title or prefix, in any order; None when there are none.

    >>> tags_of("sglang::scheduler_DP1_TP9_EP9")
    Tags(dp=1, pp=None, tp=9, ep=9)
    """
    found = {key.lower(): int(value) for key, value in _TAG.findall(text.replace("_", " "))}
    return Tags(**found) if found else None


@dataclass(slots=True)
class Identity:
    """Grows with each observation; `rank_of` answers with what is known so far, None when it is not."""

    by_comm: dict[Process, dict[str, tuple[int, int]]] = field(default_factory=lambda: defaultdict(dict))
    by_tags: dict[Process, Tags] = field(default_factory=dict)
    stated: dict[Process, int] = field(default_factory=dict)
    by_ras: dict[Process, tuple[int, int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=lambda: {"dp": 1, "pp": 1, "tp": 1})
    world_size: int | None = None
    hosts_of_pid: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))

    def note(self, seen: Observation) -> None:
        """Learn from one observation."""
        if seen.pid is not None:
            key = (seen.host, seen.pid)
            if seen.host is not None:
                self.hosts_of_pid[seen.pid].add(seen.host)
            if isinstance(seen, NcclComm):
                seats = self.by_comm[key]
                seats[seen.comm] = max(seats.get(seen.comm, (0, 0)), (seen.nranks, seen.comm_rank))
            if seen.tags is not None:
                self._note_tags(key, seen.tags)
            if seen.rank is not None:
                self._note_rank(key, seen.rank)
            if isinstance(seen, Stack) and seen.title:
                self._note_title(key, seen.title)
        if seen.tags is not None:
            self._note_sizes(seen.tags)
        if isinstance(seen, _ProcessTable):
            for row in seen.rows:
                self._note_title((seen.host, row.pid), row.command)
        if isinstance(seen, Ras):
            self._note_ras(seen)
        if isinstance(seen, Notice) and seen.notice == "server_args":
            self._note_arguments(seen)

    def introduce(self, pid: int, tags: Tags | None, rank: int | None) -> None:
        """Take the word of somebody who sees the process itself; no evidence overrules it, a later word does."""
        key = (None, pid)
        if tags is not None:
            self.by_tags[key] = tags
            self._closed_tags.add(key)
        if rank is not None:
            self.stated[key] = rank
            self._closed_ranks.add(key)

    def rank_of(self, host: str | None, pid: int | None, tags: Tags | None = None) -> int | None:
        """Global rank of a process; None when the evidence does not say."""
        if pid is not None:
            for key in self._keys(host, pid):
                if comms := self.by_comm.get(key):
                    return max(comms.values())[1]
            for key in self._keys(host, pid):
                if (found := self.by_tags.get(key)) is not None:
                    return self.global_rank(found)
            for key in self._keys(host, pid):
                if key in self.stated:
                    return self.stated[key]
            for key in self._keys(host, pid):
                if key in self.by_ras:
                    return self.by_ras[key][1]
        return None if tags is None else self.global_rank(tags)

    def global_rank(self, tags: Tags) -> int | None:
        """Global rank of parallel coordinates; DP alone counts when nothing finer was printed."""
        if tags.tp is None and tags.pp is None:
            return tags.dp if tags.dp is not None else tags.ep
        tp, pp, dp = tags.tp or 0, tags.pp or 0, tags.dp or 0
        tp_size, pp_size = self.sizes["tp"], self.sizes["pp"]
        # SGLang's data-parallel attention tags every rank with its index in the whole tensor group.
        if tags.dp is not None and self._tp_spans_dp:
            return pp * tp_size + tp
        return (dp * pp_size + pp) * tp_size + tp

    _tp_spans_dp: bool = False
    _tp_by_dp: dict[int, set[int]] = field(default_factory=lambda: defaultdict(set))
    _closed_tags: set[Process] = field(default_factory=set)
    _closed_ranks: set[Process] = field(default_factory=set)

    def _note_sizes(self, tags: Tags) -> None:
        for name in ("dp", "pp", "tp"):
            index = getattr(tags, name)
            if index is not None:
                self.sizes[name] = max(self.sizes[name], index + 1)
        if tags.dp is not None and tags.tp is not None:
            self._tp_by_dp[tags.dp].add(tags.tp)
            groups = list(self._tp_by_dp.values())
            self._tp_spans_dp = len(groups) > 1 and not any(
                a & b for i, a in enumerate(groups) for b in groups[i + 1 :]
            )

    def _note_arguments(self, seen: Notice) -> None:
        """Sizes in an engine's arguments count when larger than what tags showed."""
        for name in ("tp", "pp", "dp"):
            text = seen.fields.get(f"{name}_size", "")
            if text.isdecimal() and 0 < int(text) <= WORLD_MAX:
                self.sizes[name] = max(self.sizes[name], int(text))

    def _note_title(self, key: Process, title: str) -> None:
        if (argument := _RANK_ARGUMENT.search(title)) is not None:
            self._note_rank(key, int(argument[1]))
        tags = tags_of(title) if "::" in title or title.startswith("[") else None
        if tags is not None:
            self._note_tags(key, tags)
            self._note_sizes(tags)

    def _note_tags(self, key: Process, tags: Tags) -> None:
        """Complete what is known of a process; one that is called two different things is called neither."""
        if key in self._closed_tags:
            return
        joined = _joined(self.by_tags.get(key, Tags()), tags)
        if joined is None:
            self._closed_tags.add(key)
            del self.by_tags[key]
        else:
            self.by_tags[key] = joined

    def _note_rank(self, key: Process, rank: int) -> None:
        if key in self._closed_ranks:
            return
        if self.stated.setdefault(key, rank) != rank:
            self._closed_ranks.add(key)
            del self.stated[key]

    def _note_ras(self, ras: Ras) -> None:
        for comm in ras.comms:
            for member in (*comm.ranks, *comm.missing):
                if member.rank is not None and member.pid is not None and (comm.size or 0) > 1:
                    key, seat = (None, member.pid), (comm.size or 0, member.rank)
                    self.by_ras[key] = max(self.by_ras.get(key, seat), seat)

    def _keys(self, host: str | None, pid: int) -> Iterable[Process]:
        yield (host, pid)
        if host is not None:
            yield (None, pid)
        elif len(hosts := self.hosts_of_pid.get(pid, set())) == 1:
            yield (next(iter(hosts)), pid)


def _joined(known: Tags, new: Tags) -> Tags | None:
    """Both together; None when they contradict each other.

    >>> _joined(Tags(dp=1), Tags(tp=0))
    Tags(dp=1, pp=None, tp=0, ep=None)
    """
    found: dict[str, int] = {}
    for name in ("dp", "pp", "tp", "ep"):
        values = {getattr(tags, name) for tags in (known, new)} - {None}
        if len(values) > 1:
            return None
        found.update((name, value) for value in values)
    return Tags(**found)
