"""systemd's notification protocol (sd_notify(3)): one datagram to the socket named in NOTIFY_SOCKET."""

import os
import socket


def notify(**fields: str | int) -> bool:
    """Send `KEY=value` lines, e.g. `notify(READY=1, STATUS="watching")`; False when nobody listens."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return False
    target = "\0" + address[1:] if address.startswith("@") else address
    message = "\n".join(f"{key}={value}" for key, value in fields.items()).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(message, target)
        except OSError:
            return False
    return True


class Heartbeat:
    """Tells systemd that a loop still turns, four times within the limit that the unit's WatchdogSec= sets.

    Without that variable, or in another process than the one it was meant for, it says nothing.
    """

    def __init__(self) -> None:
        limit_us = os.environ.get("WATCHDOG_USEC", "")
        meant_for = os.environ.get("WATCHDOG_PID", str(os.getpid()))
        wanted = limit_us.isdecimal() and meant_for == str(os.getpid())
        self._every_s = int(limit_us) / 4e6 if wanted else None
        self._due_s = 0.0

    def beat(self, now_s: float) -> None:
        """Called on every turn; sends when it is time."""
        if self._every_s is not None and now_s >= self._due_s:
            self._due_s = now_s + self._every_s
            notify(WATCHDOG=1)
