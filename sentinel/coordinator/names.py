"""Names of slots and logs on the bus, and where the embedded bus of a box lies."""

from pathlib import Path

FOLDER = "coordination"
LEASE = "lease"
STATE = "state"
ACKS = "ack"
ORDERS = "order"
ANSWERS = "answer"
NOTICES = "told"


def command_slot(host: str, group: str) -> str:
    """The slot that holds the command of one group on one host."""
    return f"cmd/{host}/{group}"


def bus_folder(state: Path) -> Path:
    """The folder of the embedded bus below an agent's state."""
    return state / FOLDER / "bus"
