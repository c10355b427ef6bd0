"""Who coordinates: compare-and-set on one record, and only locally observed time. Nobody's clock is compared.

A candidate takes over when it has not seen the record change for `TTL_S` on its own clock. The holder renews every
`RENEW_S` and stands down when it could not for `GIVE_UP_S`, long before anybody may take over.
"""

from dataclasses import dataclass
from typing import Literal

from sentinel.model.group import Lease

TTL_S = 30.0
RENEW_S = 5.0
GIVE_UP_S = 20.0

Move = Literal["wait", "take", "renew", "stand_down"]


@dataclass(slots=True)
class LeaseWatch:
    """One process's view of the lease. Times are its own monotonic seconds, already scaled."""

    me: str
    ttl_s: float = TTL_S
    renew_s: float = RENEW_S
    give_up_s: float = GIVE_UP_S
    jitter_s: float = 0.0
    leading: bool = False
    seen: Lease | None = None
    _changed_s: float | None = None
    _renewed_s: float = 0.0

    def look(self, now_s: float, lease: Lease | None, *, holder_gone: bool = False) -> Move:
        """What to do, given the record as read now. `holder_gone`: its process is known to have ended."""
        if lease != self.seen or self._changed_s is None:
            self.seen, self._changed_s = lease, now_s
        if self.leading:
            if lease is None or lease.holder != self.me:
                return "stand_down"
            return self._hold(now_s)
        if lease is None or holder_gone:
            return "take"
        return "take" if now_s - self._changed_s > self.ttl_s + self.jitter_s else "wait"

    def blind(self, now_s: float) -> Move:
        """The record could not be read or written."""
        return self._hold(now_s) if self.leading else "wait"

    def _hold(self, now_s: float) -> Move:
        if now_s - self._renewed_s > self.give_up_s:
            return "stand_down"
        return "renew" if now_s - self._renewed_s >= self.renew_s else "wait"

    def took(self, now_s: float, lease: Lease) -> None:
        """The write went through: this process leads, counted from before the write."""
        self.leading, self.seen, self._changed_s, self._renewed_s = True, lease, now_s, now_s

    def stood_down(self) -> None:
        """This process no longer leads."""
        self.leading = False


def next_epoch(lease: Lease | None, reported: int) -> int:
    """Above both the record and what hosts have seen: a wiped bus cannot send epochs backwards."""
    return max(0 if lease is None else lease.epoch, reported) + 1
