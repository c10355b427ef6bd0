"""Merged stacks: threads of all ranks folded into one tree, so that the rank that stands elsewhere stands out."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import PurePosixPath

from sentinel.core import timeline
from sentinel.core.picture import Picture
from sentinel.core.stack_views import views, where
from sentinel.model.observation import Frame, Stack, Thread
from sentinel.report.words import many, span

FRAMES_MAX = 120
THREADS_MAX = 4000
NAMELESS = "(no name)"
_NAMELESS = re.compile(r"0x[0-9a-fA-F]+|\?+|<unknown>|")
ROWS_MAX = 400
STANDS_MAX = 40

FAMILIES: tuple[tuple[str, frozenset[str], bool | None], ...] = (
    ("Python stacks", frozenset({"py-spy", "faulthandler"}), False),
    ("Python and native stacks", frozenset({"pystack", "py-spy"}), None),
    ("Native stacks", frozenset({"eu-stack", "gdb"}), None),
)
"""Title, tools, and whether native frames must be absent (None: either)."""


@dataclass(frozen=True, slots=True)
class Who:
    """The owners of a stack: ranks where they are known, else processes."""

    ranks: frozenset[int]
    others: frozenset[str]

    @property
    def label(self) -> str:
        """`0-6, 9`, with processes of unknown rank behind."""
        return ", ".join(part for part in (span(self.ranks), *sorted(self.others)) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A run of frames that the same threads share, outermost first. `leaf` says that some thread ends here."""

    depth: int
    who: Who
    threads: int
    frames: tuple[str, ...]
    leaf: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """One family of stacks. `absent` are ranks without a stack and why."""

    title: str
    main: tuple[Row, ...]
    others: tuple[Row, ...]
    absent: tuple[tuple[str, str], ...]
    frozen: str
    sources: tuple[str, ...]
    cut: int


@dataclass(frozen=True, slots=True)
class Stand:
    """Ranks at one place of the host code: its kind, and the deciding function."""

    place: str
    at: str
    ranks: frozenset[int]

    @property
    def who(self) -> str:
        """`ranks 0-3`."""
        return many("rank", self.ranks)


@dataclass(slots=True)
class _Node:
    text: str = ""
    owners: set[tuple[int | None, str]] = field(default_factory=set)
    threads: int = 0
    ends: int = 0
    children: dict[str, "_Node"] = field(default_factory=dict)


def stands(picture: Picture) -> tuple[Stand, ...]:
    """Where the ranks stand, as the facts see it: the smallest group first."""
    by_place: dict[tuple[str, str], set[int]] = defaultdict(set)
    for view in picture.memo(views).ranks.values():
        by_place[view.place, where(view.chosen)].add(view.rank)
        for callback in {reading.callback for reading in view.readings if reading.callback is not None}:
            waits = f", waits: {callback.wait}" if callback.wait else ""
            by_place["CUDA callback thread", f"{callback.function}{waits}"].add(view.rank)
    ordered = sorted(by_place.items(), key=lambda item: (len(item[1]), min(item[1])))
    return tuple(Stand(place, at, frozenset(ranks)) for (place, at), ranks in ordered[:STANDS_MAX])


def forests(picture: Picture) -> tuple[Forest, ...]:
    """One merged tree per family of tools that was used; families without any stack are left out."""
    by_family: dict[str, list[Stack]] = {title: [] for title, _, _ in FAMILIES}
    for stack in picture.all(Stack):
        family = _family(stack)
        if family is not None:
            by_family[family].append(stack)
    built = (_forest(title, stacks, picture) for title, stacks in by_family.items() if stacks)
    return tuple(forest for forest in built if forest.main or forest.absent)


def _family(stack: Stack) -> str | None:
    for title, tools, bare in FAMILIES:
        if stack.tool in tools and (bare is not False or not stack.native):
            return title
    return None


def _forest(title: str, stacks: list[Stack], picture: Picture) -> Forest:
    per_owner: dict[tuple[int | None, str], list[Stack]] = defaultdict(list)
    for stack in stacks:
        per_owner[_owner(picture, stack)].append(stack)
    main, others = _Node(), _Node()
    errors: dict[str, set[int]] = defaultdict(set)
    seen_ranks: set[int] = set()
    frozen: set[int] = set()
    budget = THREADS_MAX
    for owner, dumps in per_owner.items():
        good = [dump for dump in dumps if dump.threads]
        rank = owner[0]
        if not good:
            if rank is not None:
                errors[dumps[-1].error or "empty dump"].add(rank)
            continue
        if rank is not None:
            seen_ranks.add(rank)
            if len(good) > 1 and _same_place(good[-2], good[-1]):
                frozen.add(rank)
        first = _main_thread(good[-1])
        for thread in good[-1].threads[:budget]:
            _grow(main if thread is first else others, owner, thread)
        budget = max(budget - len(good[-1].threads), 0)
    silent = set(timeline.world(picture)) - seen_ranks - {rank for ranks in errors.values() for rank in ranks}
    if silent:
        errors["no dump in the evidence"] |= silent
    rows, more = list(_flatten(main)), list(_flatten(others))
    return Forest(
        title=title,
        main=tuple(rows[:ROWS_MAX]),
        others=tuple(more[:ROWS_MAX]),
        absent=tuple((span(ranks), reason) for reason, ranks in errors.items()),
        frozen=span(frozen),
        sources=tuple(sorted({stack.origin.file for stack in stacks})),
        cut=max(len(rows) - ROWS_MAX, 0) + max(len(more) - ROWS_MAX, 0),
    )


def _owner(picture: Picture, stack: Stack) -> tuple[int | None, str]:
    rank = picture.rank_of(stack)
    if rank is not None:
        return rank, ""
    name = stack.title or (f"pid {stack.pid}" if stack.pid is not None else stack.origin.file)
    return None, name if stack.host is None else f"{name} on {stack.host}"


def _main_thread(stack: Stack) -> Thread:
    """The thread that runs the engine's loop: the one with the pid's number, or called so, else the first."""
    for thread in stack.threads:
        if thread.name == "MainThread" or (thread.tid is not None and thread.tid == stack.pid):
            return thread
    return stack.threads[0]


def _same_place(before: Stack, after: Stack) -> bool:
    return _main_thread(before).frames == _main_thread(after).frames


def _grow(root: _Node, owner: tuple[int | None, str], thread: Thread) -> None:
    node = root
    for text in _fold(map(_frame, reversed(thread.frames[:FRAMES_MAX]))):
        node = node.children.setdefault(text, _Node(text))
        node.owners.add(owner)
        node.threads += 1
    node.ends += 1


def _fold(frames: Iterable[str]) -> Iterator[str]:
    """Runs of the same frame as one: recursion, and code without names."""
    for text, run in groupby(frames):
        length = len(list(run))
        if text.startswith(NAMELESS):
            yield f"{text} …" if length > 1 else text  # how many differs between ranks and says nothing
        else:
            yield f"{text} × {length}" if length > 1 else text


def _frame(frame: Frame) -> str:
    """Function, file name and line; folders and addresses differ between hosts and are dropped."""
    function = NAMELESS if _NAMELESS.fullmatch(frame.function) else frame.function
    if frame.file is None:
        return function
    name = PurePosixPath(frame.file).name
    return f"{function} ({name}:{frame.line})" if frame.line is not None else f"{function} ({name})"


def _flatten(root: _Node) -> Iterator[Row]:
    """Rows in depth-first order, small groups first: the odd one out is what a reader looks for."""
    pending: list[tuple[_Node, int]] = [(child, 0) for child in _by_size(root.children.values())]
    while pending:
        node, depth = pending.pop()
        frames = [node.text]
        while not node.ends and len(node.children) == 1:
            (node,) = node.children.values()
            frames.append(node.text)
        yield Row(
            depth=depth,
            who=Who(
                frozenset(rank for rank, _ in node.owners if rank is not None),
                frozenset(name for rank, name in node.owners if rank is None),
            ),
            threads=node.threads,
            frames=tuple(frames),
            leaf=node.ends > 0,
        )
        pending.extend((child, depth + 1) for child in _by_size(node.children.values()))


def _by_size(nodes: Iterable[_Node]) -> list[_Node]:
    """Largest first, since the list is used as a stack."""
    return sorted(nodes, key=lambda node: -len(node.owners))
