"""Names of slots and logs on the bus."""

LEASE = "lease"
STATE = "state"
ACKS = "ack"
ORDERS = "order"
ANSWERS = "answer"
NOTICES = "told"


def command_slot(host: str, group: str) -> str:
    """The slot that holds the command of one group on one host."""
    return f"cmd/{host}/{group}"
