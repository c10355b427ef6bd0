"""What an adapter is, and the view of a process that it decides on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sentinel.model.engine import KillDeadline, ProcessId, Role
from sentinel.model.observation import Tags


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessView:
    """One process as /proc shows it. `environ` is empty when it could not be read (no permission)."""

    id: ProcessId
    ppid: int
    argv: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    environ_readable: bool = True

    @property
    def title(self) -> str:
        """The command line as one string; engines overwrite it with a title."""
        return " ".join(self.argv)

    def flag(self, *names: str) -> str | None:
        """Value of a command-line flag, `--name value` or `--name=value`; the last one given wins."""
        found = None
        for index, word in enumerate(self.argv):
            name, equals, value = word.partition("=")
            if name in names:
                found = value if equals else next(iter(self.argv[index + 1 : index + 2]), "")
        return found

    def has(self, name: str) -> bool:
        """Whether a switch is given."""
        return name in self.argv


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a process of an engine is: its role, and the rank coordinates that its title states."""

    role: Role
    tags: Tags | None = None
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadQuestion:
    """How to ask an engine for its load when it has no metrics page.

    `paths` are tried in order, the first that exists is used. `samples` reads an answer's JSON as gauges by metric
    family; empty when it is none.
    """

    paths: tuple[str, ...]
    samples: Callable[[object], Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """Pure functions over process views.

    `claims`: is this the root process of an engine? `place`: what is a descendant (all descendants given)?
    `deadline`: when does the engine kill itself, None when nothing would. `url`: where its HTTP API listens.
    `world_size`: ranks over all hosts, None when the arguments do not say. `launch`: name of the launch that a root
    belongs to and its place in it, where nodes may share a box; None when the root is an engine by itself.
    """

    name: Literal["sglang", "vllm", "packaged"]
    claims: Callable[[ProcessView], bool]
    place: Callable[[ProcessView, Sequence[ProcessView]], Place]
    deadline: Callable[[ProcessView], KillDeadline | None]
    url: Callable[[ProcessView], str | None]
    world_size: Callable[[ProcessView], int | None]
    load: LoadQuestion | None = None
    launch: Callable[[ProcessView], tuple[str, int] | None] = lambda _root: None


def number(text: str | None, otherwise: float) -> float:
    """A flag's number; `otherwise` when it is absent or not a number."""
    try:
        return otherwise if text is None else float(text)
    except ValueError:
        return otherwise


def loopback_url(host: str | None, port: int) -> str:
    """The API's address from the same host: a wildcard bind is reached over loopback."""
    reachable = "127.0.0.1" if host in (None, "", "0.0.0.0", "::", "localhost") else host
    return f"http://{reachable}:{port}"
