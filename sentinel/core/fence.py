"""Which commands a host obeys. The host is the fence: the coordinator may be stale, split or forged.

Everything that is asked here is local: the highest epoch ever seen, the commands already answered, the lease as this
host saw it change, the incarnation that runs now.
"""

import re
from dataclasses import dataclass, field

from sentinel.model.group import Ack, Command, Lease

LIVE_S = 20.0
"""A lease that did not change for this long on the host's own clock is nobody's: its holder stood down by then."""
TTL_BEATS = 12
"""Renewals of the lease after which a command is too old to be begun (60 s)."""
_MODE = re.compile(r"[a-z][a-z0-9_-]{0,31}|")
_SECONDS = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9})?")
DESTRUCTIVE = frozenset({"stop", "start", "store_set", "unblock"})


@dataclass(frozen=True, slots=True)
class Obey:
    """Carry it out."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Say this and do nothing."""

    ack: Ack


@dataclass(frozen=True, slots=True)
class Ignore:
    """Do nothing and say nothing yet: the sender is stale, or not known to be alive.

    `guard` is a constant word, also a metrics label; empty where nothing stands against the command.
    """

    why: str
    guard: str = ""


Judgement = Obey | Answer | Ignore


@dataclass(slots=True)
class Fence:
    """One host's memory. `epoch_max` and `answers` are durable; the lease is watched afresh after every start."""

    host: str
    epoch_max: int = 0
    answers: dict[str, Ack] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    live_s: float = LIVE_S
    _lease: Lease | None = None
    _changed_s: float | None = None

    def watch_lease(self, now_s: float, lease: Lease | None) -> None:
        """The lease as read now. A change after the first sight proves that its holder is alive."""
        if lease is None or self._lease is None:
            self._lease, self._changed_s = lease, None
        elif lease != self._lease:
            self._lease, self._changed_s = lease, now_s

    @property
    def epoch_known(self) -> int:
        """The highest epoch that was obeyed here or is in the lease: whoever writes a lower one by now is stale."""
        return max(self.epoch_max, 0 if self._lease is None else self._lease.epoch)

    def judge(self, now_s: float, command: Command) -> Judgement:
        """Whether to obey. The caller has made `epoch_max` durable before it acts, see `raises_epoch`."""
        if command.host != self.host:
            return Ignore(f"it is addressed to {command.host}", "host")
        if (said := self.answers.get(command.id)) is not None:
            return Answer(said)
        if command.id in self.begun:
            return Ignore("it is being carried out")
        if command.epoch < self.epoch_max:
            return Ignore(f"epoch {command.epoch} is older than {self.epoch_max}", "stale_epoch")
        lease = self._lease
        if lease is None or self._changed_s is None or now_s - self._changed_s > self.live_s:
            return Ignore("the coordinator is not known to be alive", "not_alive")
        if lease.epoch != command.epoch:
            return Ignore(f"the lease has epoch {lease.epoch}, the command {command.epoch}", "other_epoch")
        if not command.beat <= lease.beat <= command.beat + TTL_BEATS:
            return Ignore(f"it was written {lease.beat - command.beat} renewals ago", "late")
        return Obey()

    def raises_epoch(self, command: Command) -> bool:
        """Whether obeying makes a higher epoch known, which must be durable first."""
        return command.epoch > self.epoch_max


def wrong_incarnation(command: Command, running: str | None) -> Ack | None:
    """The answer to a command whose engine is not the one that runs now; None when it may go on.

    `running` is the incarnation that runs now, empty when none does, None when that could not be told.
    """
    if command.verb not in DESTRUCTIVE:
        return None
    if running is None:
        return _refuse(command, "which engine runs here cannot be told")
    if command.verb == "start":
        if running and running != command.incarnation:
            return Ack(id=command.id, host=command.host, outcome="noop", incarnation=running, why="it runs already")
        return _refuse(command, "the engine that was to be stopped still runs") if running else None
    if running == command.incarnation:
        return None
    if not running:
        return Ack(id=command.id, host=command.host, outcome="noop", why="that incarnation is gone already")
    return _refuse(command, f"another incarnation runs here: {running}")


def malformed(command: Command) -> Ack | None:
    """The answer to a command whose arguments are none that a coordinator gives; None when they are."""
    mode, within = command.args.get("mode", ""), command.args.get("within_s", "1")
    if command.verb in ("store_check", "store_set") and not mode:
        return _refuse(command, "it names no store mode")
    if not _MODE.fullmatch(mode):
        return _refuse(command, "its store mode is no mode")
    if not _SECONDS.fullmatch(within):
        return _refuse(command, "its time limit is no number of seconds")
    return None


def _refuse(command: Command, why: str) -> Ack:
    return Ack(id=command.id, host=command.host, outcome="refused", why=why)
