"""Who may ask, and about whom: a small file that only root can write.

    # /etc/sentinel/helper.conf
    user sentinel
    allow-cgroup /system.slice/vllm.service
    allow-cgroup /system.slice/docker-*.scope

A control group is allowed with all below it. `*` stands for any characters but a slash.
"""

import os
import pwd
import re
import stat
from dataclasses import dataclass
from pathlib import Path

BYTES_MAX = 64 << 10
GROUPS_MAX = 256


class PolicyError(Exception):
    """The file cannot be used; the message says what to repair."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Users that may ask (root always may), and patterns of control groups that may be asked about."""

    uids: frozenset[int]
    groups: tuple[re.Pattern[str], ...]

    def admits(self, uid: int) -> bool:
        """Whether this user may ask."""
        return uid == 0 or uid in self.uids

    def covers(self, cgroup: str) -> bool:
        """Whether a control group is allowed, or lies below one that is."""
        return ".." not in cgroup.split("/") and any(pattern.fullmatch(cgroup) for pattern in self.groups)


def load(path: Path, owner: int = 0) -> Policy:
    """Read the file. Raises PolicyError when it is missing, malformed, or somebody other than `owner` may write it."""
    try:
        with path.open("rb") as file:
            state = os.fstat(file.fileno())
            text = file.read(BYTES_MAX + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: {error}; write it as in docs/operate.md") from error
    if state.st_uid != owner or state.st_mode & (stat.S_IWGRP | stat.S_IWOTH) or not stat.S_ISREG(state.st_mode):
        raise PolicyError(f"{path}: must be a file that only root can write: chown root {path}; chmod go-w {path}")
    if len(text) > BYTES_MAX:
        raise PolicyError(f"{path}: larger than {BYTES_MAX} bytes")
    return parse(text, str(path))


def parse(text: str, name: str = "helper.conf") -> Policy:
    """A policy from its text. Raises PolicyError."""
    uids: set[int] = set()
    groups: list[re.Pattern[str]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        match words:
            case ["user", user]:
                uids.add(_uid(user, f"{name}:{number}"))
            case ["allow-cgroup", group] if group.startswith("/") and group != "/" and ".." not in group.split("/"):
                groups.append(re.compile(re.escape(group.rstrip("/")).replace(r"\*", "[^/]*") + "(?:/.*)?", re.DOTALL))
            case _:
                raise PolicyError(
                    f"{name}:{number}: expected `user NAME` or `allow-cgroup /PATH`, found {line.strip()}"
                )
    if len(groups) > GROUPS_MAX:
        raise PolicyError(f"{name}: more than {GROUPS_MAX} control groups")
    return Policy(frozenset(uids), tuple(groups))


def _uid(user: str, where: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError as error:
        raise PolicyError(f"{where}: there is no user {user}; run systemd-sysusers, or correct the name") from error
