"""`python -m sentinel.helper`: answer the one connection that systemd hands over as descriptor 3 (sd_listen_fds(3))."""

import socket
import sys
from pathlib import Path

from sentinel.helper.policy import PolicyError, load
from sentinel.helper.server import Verbs, serve

CONFIG = Path("/etc/sentinel/helper.conf")
LISTEN_FD = 3


def main(verbs: Verbs | None = None) -> int:
    """Serve, and say on stderr (the unit's journal) what was asked by whom."""
    try:
        policy = load(CONFIG)
    except PolicyError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    try:
        client = socket.socket(fileno=LISTEN_FD)
    except OSError as error:
        sys.stderr.write(f"descriptor {LISTEN_FD} is no connection ({error}); systemd starts this, not a person\n")
        return 1
    with client:
        sys.stderr.write(f"{serve(client, policy, verbs)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
