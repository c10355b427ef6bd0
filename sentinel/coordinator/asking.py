"""Asking over the bus: give an order and wait for its answer; read what was told and saved."""

import threading

import msgspec

from sentinel.bus.bus import Bus, BusError, bounded
from sentinel.coordinator.names import ANSWERS, NOTICES, ORDERS, STATE
from sentinel.coordinator.wire import ORDER_BYTES_MAX, read
from sentinel.model.cluster import Answered, ClusterState, Order, Told
from sentinel.plumbing.clock import Clock

ANSWER_S = 15.0
POLL_S = 0.1


def ask(bus: Bus, order: Order, clock: Clock) -> Answered | None:
    """Give an order; None when nobody answered in time, when it may still be obeyed. Raises BusError."""
    data = msgspec.json.encode(order)
    bounded("an order", data, ORDER_BYTES_MAX)
    newest = bus.append(ORDERS, data, order.id)
    waiting, until_s = threading.Event(), clock.now().mono_s + ANSWER_S
    while clock.now().mono_s < until_s:
        for record in bus.follow(ANSWERS, newest, limit=4096):
            if record.key == order.id:
                return read(record.data, Answered)
        waiting.wait(POLL_S)
    return None


def state_of(bus: Bus) -> ClusterState | None:
    """What the coordinator saved last. Raises BusError, also when it cannot be read."""
    slot = bus.read(STATE)
    state = None if slot is None else read(slot.data, ClusterState)
    if slot is not None and state is None:
        raise BusError(
            "what the coordinator saved cannot be read; it acts on nothing until a person resets its breaker"
        )
    return state


def notices(bus: Bus) -> list[Told]:
    """All notices that the bus still holds and that can be read, oldest first."""
    found: list[Told] = []
    after = 0
    while records := bus.follow(NOTICES, after):
        found += [told for record in records if (told := read(record.data, Told)) is not None]
        after = records[-1].number
    return found
