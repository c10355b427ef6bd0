"""A conversation with the launcher's half on a node: JSON lines over pipes, with deadlines."""

import json
import os
import select
import shlex
import subprocess
import time
from types import TracebackType
from typing import Any, Self

from .cluster import Node
from .errors import NodeLost, Refused
from .plan import interpreter

SSH_CONNECT_S = 10
_ERROR_CHARACTERS = 500


def reach(node: Node) -> list[str]:
    """The command that opens a session on a node."""
    program = [interpreter(node), "-m", "sentinel_engine.launcher.node"]
    if node.netns:
        return ["ip", "netns", "exec", node.netns, *program]
    if node.ssh:
        options = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={SSH_CONNECT_S}"]
        return ["ssh", *options, *node.ssh_options, "--", node.ssh, shlex.join(program)]
    return program


class Session:
    """One open session; `ask` it, and close it: engines it started live on."""

    def __init__(self, node: Node) -> None:
        self.node = node
        try:
            # Out of the terminal's group: an interrupted launch still needs it to stop the engine.
            self._process = subprocess.Popen(
                reach(node), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise NodeLost(f"{node.name}: {error}; is the program installed?") from error
        self._rest = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the session, not what it started."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.communicate()

    def ask(self, verb: str, deadline_s: float, **arguments: Any) -> Any:
        """The answer to one request; NodeLost without one in time, Refused when it says no."""
        assert self._process.stdin is not None
        line = json.dumps({"verb": verb, **arguments}) + "\n"
        try:
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()
        except OSError:
            raise self._lost(f"'{verb}' could not be sent") from None
        answer = self._parsed(self._line(verb, deadline_s))
        if "refused" in answer:
            raise Refused(f"{self.node.name}: {answer['refused']}")
        return answer["answer"]

    def _line(self, verb: str, deadline_s: float) -> bytes:
        assert self._process.stdout is not None
        give_up = time.monotonic() + deadline_s
        while b"\n" not in self._rest:
            left_s = give_up - time.monotonic()
            if left_s <= 0 or not select.select([self._process.stdout], [], [], left_s)[0]:
                raise self._lost(f"no answer to '{verb}' within {deadline_s:g} s")
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part:
                raise self._lost(f"the session ended during '{verb}'")
            self._rest += part
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _parsed(self, line: bytes) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(line)
        except ValueError:
            raise self._lost(f"said {line[:100]!r}; keep its start-up files quiet") from None
        return found

    def _lost(self, what: str) -> NodeLost:
        self._process.kill()
        _, errors = self._process.communicate()
        said = errors.decode(errors="replace").strip()[-_ERROR_CHARACTERS:]
        return NodeLost(f"{self.node.name}: {what}; try `{shlex.join(reach(self.node))}`. {said}")
