"""Who may ask the API over TCP: bearers of a token, by role. What is refused is kept in the log of notices.

Tokens are compared by digest, in a time that does not depend on them, and are kept, logged and answered nowhere.
Whoever bears a right one is never locked out by the wrong ones of others: tokens are too long to be guessed, and the
bounds keep the log from being filled.
"""

import hmac
import os
import re
import stat
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import msgspec
import structlog
from starlette.responses import Response

from sentinel.bus.bus import Bus, BusError
from sentinel.coordinator.names import NOTICES
from sentinel.model.cluster import Severity, Told
from sentinel.plumbing.clock import Clock

Role = Literal["viewer", "operator"]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

TOKEN_LENGTH_MIN, TOKEN_LENGTH_MAX = 32, 256
FILE_BYTES_MAX = 64 << 10
BAD_BURST, BAD_EVERY_S = 10, 6.0
"""Bad tries that are answered as such: ten at once, and one more every six seconds."""
TOLD_BURST, TOLD_EVERY_S = 20, 600.0
"""Refusals that are kept, viewers' included: slowly enough that they never push an incident out of the log."""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Connection": "close",
}
_LINE = re.compile(r"(viewer|operator)\s+([A-Za-z0-9][A-Za-z0-9._-]{0,62})\s+([!-~]+)")


class TokensError(OSError):
    """A file of tokens that cannot be used; the message says why, and never what stands in it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks."""

    name: str
    role: Role


class Tokens:
    """The callers of a file, read anew when it changes. A file that cannot be used lets nobody in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Looked at before it is read: what changes in between is read again.
        self._seen = self._signature()
        self._known = self._read()

    def caller(self, token: str) -> Caller | None:
        """Whose token this is. Every known token is compared, whichever it is."""
        self._refresh()
        given, found = sha256(token.encode()).digest(), None
        for digest, caller in self._known:
            if hmac.compare_digest(digest, given):
                found = caller
        return found

    def _refresh(self) -> None:
        seen = self._signature()
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._known = self._read()
        except TokensError as error:
            self._known = ()
            structlog.get_logger().error("api_tokens_unusable", why=str(error))

    def _signature(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return (found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode)

    def _read(self) -> tuple[tuple[bytes, Caller], ...]:
        try:
            with self._path.open() as file:
                if os.fstat(file.fileno()).st_mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
                    raise TokensError(f"{self._path} is open to others; chmod 0640 or stricter")
                text = file.read(FILE_BYTES_MAX + 1)
        except UnicodeDecodeError:
            raise TokensError(f"{self._path} is no text") from None
        except TokensError:
            raise
        except OSError as error:
            raise TokensError(f"{self._path}: {error.strerror}") from error
        if len(text) > FILE_BYTES_MAX:
            raise TokensError(f"{self._path} is longer than {FILE_BYTES_MAX} bytes; a token could be cut")
        found = tuple(self._callers(text))
        if not found:
            raise TokensError(f"{self._path} holds no token; add `operator NAME TOKEN`")
        return found

    def _callers(self, text: str) -> list[tuple[bytes, Caller]]:
        found: dict[bytes, Caller] = {}
        for number, line in enumerate(map(str.strip, text.splitlines()), 1):
            if not line or line.startswith("#"):
                continue
            parts = _LINE.fullmatch(line)
            if parts is None:
                raise TokensError(f"{self._path}: line {number} is not `viewer|operator NAME TOKEN`")
            if not TOKEN_LENGTH_MIN <= len(parts[3]) <= TOKEN_LENGTH_MAX:
                limits = f"{TOKEN_LENGTH_MIN} to {TOKEN_LENGTH_MAX}"
                raise TokensError(f"{self._path}: the token in line {number} needs {limits} characters")
            digest = sha256(parts[3].encode()).digest()
            if digest in found:
                raise TokensError(f"{self._path}: line {number} repeats a token; nobody could tell who asked")
            found[digest] = Caller(parts[2], "viewer" if parts[1] == "viewer" else "operator")
        return list(found.items())


@dataclass(slots=True)
class Bucket:
    """`burst` at once, and one more every `every_s`."""

    clock: Clock
    burst: int
    every_s: float
    _left: float = field(init=False)
    _at_s: float | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._left = float(self.burst)

    def take(self) -> tuple[bool, bool]:
        """(whether this one is within the bound, whether it is the last that is)."""
        with self._lock:
            now_s = self.clock.now().mono_s
            if self._at_s is not None:
                self._left = min(float(self.burst), self._left + (now_s - self._at_s) / self.every_s)
            self._at_s = now_s
            if self._left < 1.0:
                return False, False
            self._left -= 1.0
            return True, self._left < 1.0


@dataclass(slots=True)
class Guard:
    """Stands before the application: no token 401, a viewer who orders 403, too many wrong ones 429."""

    app: App
    tokens: Tokens
    bus: Bus
    clock: Clock
    tries: Bucket = field(init=False)
    tells: Bucket = field(init=False)

    def __post_init__(self) -> None:
        self.tries = Bucket(self.clock, BAD_BURST, BAD_EVERY_S)
        self.tells = Bucket(self.clock, TOLD_BURST, TOLD_EVERY_S)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. What is no HTTP is not answered."""
        if scope["type"] != "http":
            return
        caller = self.tokens.caller(_bearer(scope))
        if caller is None:
            await self._unknown(scope)(scope, receive, send)
        elif caller.role != "operator" and scope["method"] not in ("GET", "HEAD"):
            self._note(f"{caller.name} is a viewer and asked for {_what(scope)}", "info")
            refused = answer({"error": "a viewer may look, not order"}, 403)
            await refused(scope, receive, send)
        else:
            scope["caller"] = caller
            await self.app(scope, receive, send)

    def _unknown(self, scope: Scope) -> Response:
        within, last = self.tries.take()
        if not within:
            response = answer({"error": "too many tries without a right token"}, 429)
            response.headers["Retry-After"] = str(int(BAD_EVERY_S))
            return response
        whom = (scope.get("client") or ("unknown",))[0]
        self._note(f"{whom} asked for {_what(scope)} without a right token", "info")
        if last:
            self._note(f"{whom} and others keep asking without a right token; more of it is not told", "warning")
        response = answer({"error": "a right token is needed: Authorization: Bearer TOKEN"}, 401)
        response.headers["WWW-Authenticate"] = "Bearer"
        return response

    def _note(self, words: str, severity: Severity) -> None:
        within, last = self.tells.take()
        if not within:
            return
        words += "; refusals after this one are told of less often" if last else ""
        structlog.get_logger().warning("api_refused", words=words)
        told = Told(what="api_refused", key=f"api/{os.urandom(8).hex()}", severity=severity, words=words)
        try:
            self.bus.append(NOTICES, msgspec.json.encode(told), told.key)
        except BusError as error:
            structlog.get_logger().error("api_refusal_not_kept", why=str(error))


def answer(value: Any, status: int = 200) -> Response:
    """JSON that no browser runs, frames or keeps."""
    return Response(msgspec.json.encode(value), status, headers=HEADERS, media_type="application/json")


def _bearer(scope: Scope) -> str:
    given = [value for name, value in scope["headers"] if name == b"authorization"]
    scheme, _, token = (given[0] if len(given) == 1 else b"").decode("latin-1").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and len(token) <= TOKEN_LENGTH_MAX else ""


def _what(scope: Scope) -> str:
    """The request, in characters that cannot forge a line of a log."""
    path = re.sub(r"[^A-Za-z0-9/._-]", "?", scope["path"][:100])
    return f"{re.sub(r'[^A-Z]', '?', scope['method'][:10])} {path}"
