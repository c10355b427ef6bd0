"""The order in which one process made its calls across communicators, and whether two processes made them alike."""

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

from sentinel.core.collectives import Group, Process, groups
from sentinel.core.picture import Picture

HISTORY_CALLS = 8
"""Calls that must agree before a difference: without a history of agreement, order says nothing (two host threads)."""
REGULAR_SHARE = 0.8
FEWEST_SEGMENTS = 4

Shape = tuple[str, int, int, int]
Token = tuple[tuple[object, ...], Shape]


@dataclass(frozen=True, slots=True)
class Sequence:
    """The last calls of a process, oldest first; the first of them was its `begin`-th call."""

    begin: int
    tokens: tuple[Token, ...]

    @property
    def end(self) -> int:
        """How many calls the process made."""
        return self.begin + len(self.tokens)


def sequences(picture: Picture) -> dict[Process, Sequence]:
    """For each process the stretch at its end in which the calls of all its communicators are known."""
    calls: dict[Process, list[tuple[int, Token]]] = {}
    begins: dict[Process, int] = {}
    for group in picture.memo(groups):
        for member in group.members:
            if member.calls is None or not member.calls.tail:
                continue
            tail = member.calls.tail
            calls.setdefault(member.process, []).extend((op.order, (group.key, op.shape)) for op in tail)
            known_from = tail[0].order if member.calls.total > len(tail) else 0
            begins[member.process] = max(begins.get(member.process, 0), known_from)
    return {process: _sequence(found, begins[process]) for process, found in calls.items()}


def _sequence(found: list[tuple[int, Token]], begin: int) -> Sequence:
    """Only the stretch without a gap: a communicator that could not be joined leaves holes."""
    ordered = sorted((entry for entry in found if entry[0] >= begin), key=lambda entry: entry[0])
    if not ordered:
        return Sequence(begin, ())
    last = ordered[-1][0]
    tokens: list[Token] = []
    for back, (order, token) in enumerate(reversed(ordered)):
        if order != last - back:
            break
        tokens.append(token)
    tokens.reverse()
    return Sequence(last - len(tokens) + 1, tuple(tokens))


def first_parting(one: Sequence, other: Sequence) -> int | None:
    """Index of the first call at which two processes part, after a history of agreement; None when they do not.

    None also when one sequence is the start of the other: that process merely has not gone on.
    """
    begin, end = max(one.begin, other.begin), min(one.end, other.end)
    for at in range(begin, end):
        if one.tokens[at - one.begin] != other.tokens[at - other.begin]:
            return at if at - begin >= HISTORY_CALLS else None
    return None


def agrees(one: Sequence, other: Sequence) -> bool | None:
    """Whether the common stretch is alike; None when there is none long enough to tell."""
    begin, end = max(one.begin, other.begin), min(one.end, other.end)
    if end - begin < HISTORY_CALLS and begin > 0:
        return None
    return all(one.tokens[at - one.begin] == other.tokens[at - other.begin] for at in range(begin, end))


def breaks_rhythm(sequence: Sequence) -> bool | None:
    """Whether the last complete step of a process differs from its own earlier steps; None without a rhythm.

    Sizes count where they come again and again (decode); where every step has its own, the operations alone do.
    """
    exact, loose = _breaks(list(sequence.tokens)), _breaks([(group, shape[0]) for group, shape in sequence.tokens])
    return None if exact is None and loose is None else bool(exact or loose)


def _breaks(tokens: list[Token] | list[tuple[tuple[object, ...], str]]) -> bool | None:
    """The rarest call that comes again and again (a broadcast once a step) cuts the calls into steps."""
    counts: Counter[object] = Counter(tokens)
    half = len(tokens) // 2
    everywhere = set(tokens[:half]) & set(tokens[half:])
    rare = [token for token, count in counts.items() if count > FEWEST_SEGMENTS and token in everywhere]
    if len(counts) < 2 or not rare:
        return None
    cut = min(rare, key=lambda token: counts[token])
    at = [index for index, token in enumerate(tokens) if token == cut]
    steps = [tuple(tokens[a + 1 : b]) for a, b in pairwise(at)]
    usual, times = Counter(steps[:-1]).most_common(1)[0]
    if times < REGULAR_SHARE * (len(steps) - 1):
        return None
    return steps[-1] != usual


def shared(picture: Picture, one: Process, other: Process) -> list[Group]:
    """Communicators in which both processes were traced."""
    return [group for group in picture.memo(groups) if {one, other} <= {member.process for member in group.members}]
