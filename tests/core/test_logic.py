"""Three-valued logic: a certain answer settles, otherwise unknown spreads."""

from hypothesis import given
from hypothesis import strategies as st

from sentinel.core.logic import Truth, all_of, any_of, negate

TRUTHS = st.lists(st.sampled_from([True, False, None]), max_size=6)


@given(TRUTHS)
def test_unknown_never_becomes_certain_by_guessing(parts: list[Truth]) -> None:
    """If false, a missing source could turn into evidence of health or of blame."""
    possible_all = {all(filled) for filled in _fillings(parts)}
    possible_any = {any(filled) for filled in _fillings(parts)}

    assert all_of(parts) == (possible_all.pop() if len(possible_all) == 1 else None)
    assert any_of(parts) == (possible_any.pop() if len(possible_any) == 1 else None)


@given(TRUTHS)
def test_negation_turns_all_into_any(parts: list[Truth]) -> None:
    """If false, `none` in a rule would mean something else than not any."""
    assert negate(any_of(parts)) == all_of([negate(part) for part in parts])


def _fillings(parts: list[Truth]) -> list[list[bool]]:
    """Every way in which the unknown parts could turn out."""
    filled: list[list[bool]] = [[]]
    for part in parts:
        choices = [True, False] if part is None else [part]
        filled = [[*done, choice] for done in filled for choice in choices]
    return filled
