"""Two network namespaces joined by a virtual cable: two nodes of a network on one machine. Needs root and iproute2."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass

from sentinel.plumbing.subprocesses import run_bounded

IP_S = 20.0
DEVICE = "sentinel0"
NET = "10.231.77"


@dataclass(frozen=True, slots=True)
class Namespaces:
    """Names of the two, the first being the head's, and their addresses."""

    names: tuple[str, str]
    addresses: tuple[str, str]


@contextlib.contextmanager
def namespaces(tag: str) -> Iterator[Namespaces]:
    """Made, joined, and taken away again. `tag` makes the names unique. Raises RuntimeError."""
    both = Namespaces((f"sn{tag}a", f"sn{tag}b"), (f"{NET}.1", f"{NET}.2"))
    with contextlib.ExitStack() as stack:
        for name in both.names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
        first, second = both.names
        _ip("link", "add", DEVICE, "netns", first, "type", "veth", "peer", "name", DEVICE, "netns", second)
        for name, address in zip(both.names, both.addresses, strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", DEVICE)
            for device in ("lo", DEVICE):
                _ip("-n", name, "link", "set", device, "up")
        yield both


@contextlib.contextmanager
def if_possible(tag: str) -> Iterator[Namespaces | None]:
    """The same, or None where they cannot be made: no root, no `ip`, or a container without the right."""
    with contextlib.ExitStack() as stack:
        made = None
        if os.geteuid() == 0 and shutil.which("ip") is not None:
            with contextlib.suppress(RuntimeError):
                made = stack.enter_context(namespaces(tag))
        yield made


def inside(name: str) -> tuple[str, ...]:
    """What runs a command in a namespace, put before it; nothing for the machine's own network."""
    return ("ip", "netns", "exec", name) if name else ()


def _ip(*words: str) -> None:
    ran = run_bounded(("ip", *words), deadline_s=IP_S)
    if not ran.ok:
        raise RuntimeError(f"`ip {' '.join(words)}`: {ran.why or ran.said_last}")
