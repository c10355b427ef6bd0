"""Work that may wait for an answer, done on a thread of its own with a bounded outbox."""

import threading
from collections import deque
from collections.abc import Callable, Iterator

from sentinel.agent.source import Said

OUTBOX_MAX = 64


class Background:
    """Calls `work` every `every_s` seconds until closed; `drain` gives what it said since. Drops the oldest."""

    def __init__(self, name: str, every_s: float, work: Callable[[], list[Said]]) -> None:
        self.dropped = 0
        self.error: BaseException | None = None
        self._every_s, self._work = every_s, work
        self._outbox: deque[Said] = deque(maxlen=OUTBOX_MAX)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def drain(self) -> Iterator[Said]:
        """What was said since the last call; raises what the work raised, once, so that it is counted."""
        while self._outbox:
            yield self._outbox.popleft()
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def close(self) -> None:
        """Stop after the present piece of work."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                said = self._work()
            except Exception as error:
                self.error = error
                said = []
            for one in said:
                self.dropped += len(self._outbox) == OUTBOX_MAX
                self._outbox.append(one)
            self._stop.wait(self._every_s)
