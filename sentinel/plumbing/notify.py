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
