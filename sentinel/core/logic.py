"""Three-valued logic: True, False and None for unknown. One certain answer settles; otherwise unknown spreads."""

from collections.abc import Iterable

Truth = bool | None


def all_of(parts: Iterable[Truth]) -> Truth:
    """False if any part is False, else unknown if any is unknown, else True (also for no parts)."""
    result: Truth = True
    for part in parts:
        if part is False:
            return False
        if part is None:
            result = None
    return result


def any_of(parts: Iterable[Truth]) -> Truth:
    """True if any part is True, else unknown if any is unknown, else False (also for no parts)."""
    result: Truth = False
    for part in parts:
        if part is True:
            return True
        if part is None:
            result = None
    return result


def negate(part: Truth) -> Truth:
    """The opposite; unknown stays unknown."""
    return None if part is None else not part
