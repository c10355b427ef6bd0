"""Ends a program on SIGTERM or SIGINT."""

import _thread
import signal
import threading


def stop_on_signals(stop: threading.Event) -> None:
    """Set an event on either signal.

    On a thread: the handler may interrupt the main thread while it holds the event's own lock, and `threading.Thread`
    takes locks of its own.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: _thread.start_new_thread(stop.set, ()))
