"""What others put on the bus, read without trust: a value of the right kind, or None.

One record that nobody can read is passed over. It must neither end a loop nor hide the records behind it.
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")
ORDER_BYTES_MAX = 20 << 10
"""An order: its answer and the notice of it repeat its words, and have to fit into a record each."""
COMMAND_BYTES_MAX = 16 << 10
"""A command: its acknowledgement repeats its name."""


def read(data: bytes, kind: type[T]) -> T | None:
    """The value that these bytes are; None when they are none of this kind, nested without end included."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, RecursionError):
        return None
