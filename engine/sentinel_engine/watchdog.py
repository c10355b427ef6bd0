"""Ends a rank that makes no progress while it has work, as SGLang's watchdog does.

It looks every half time-out. The hard stage prints what ran, with the stacks of all threads, and
tells the node's supervisor to kill the tree; the soft stage only prints.
"""

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

from .logs import say

_PR_SET_PDEATHSIG = 1


class Watchdog(threading.Thread):
    """`progress` counts forward passes; `busy` says what runs now, empty when nothing does."""

    def __init__(
        self, tag: str, timeout_s: float, *, soft: bool, progress: Callable[[], int],
        busy: Callable[[], str],
    ) -> None:  # fmt: skip
        super().__init__(name="soft watchdog" if soft else "watchdog", daemon=True)
        self._tag, self._timeout_s, self._soft = tag, timeout_s, soft
        self._progress, self._busy = progress, busy

    def run(self) -> None:
        """Watch until the process ends."""
        seen, since = -1, time.monotonic()
        pause = threading.Event()
        while not pause.wait(self._timeout_s / 2):
            if not self._busy() or self._progress() != seen:
                seen, since = self._progress(), time.monotonic()
            elif time.monotonic() >= since + self._timeout_s:
                self._tell()
                if not self._soft:
                    os.kill(os.getppid(), signal.SIGQUIT)
                    return
                since = time.monotonic()

    def _tell(self) -> None:
        say(self._tag, f"Scheduler debug info:\nscheduler.cur_batch={self._busy()}\n"
                       f"scheduler.forward_ct={self._progress()}")  # fmt: skip
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        settings = f"self.watchdog_timeout={self._timeout_s:g}, self.soft={self._soft}"
        say(self._tag, f"Scheduler watchdog timeout ({settings})")


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent is gone, so that no rank is orphaned."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
