"""What the restart drill measures of Sentinel itself."""

from sentinel.testing.restart_drill import ADDED_MAX_S, added_s, too_slow


def test_what_sentinel_adds_counts_from_the_later_of_verdict_and_hold() -> None:
    """False: the two minutes for which nothing may be done are taken for slowness, or hide it."""
    assert added_s(70.0, 120.0, 131.5) == 11.5
    assert added_s(140.0, 120.0, 151.0) == 11.0
    assert added_s(None, 120.0, 151.0) is None and added_s(70.0, 120.0, None) is None


def test_a_drill_on_real_clocks_fails_when_it_adds_too_much() -> None:
    """False: the promise of 20 s is broken and the drill is green."""
    assert list(too_slow(ADDED_MAX_S, 1.0)) == [] and list(too_slow(None, 1.0)) == []
    assert len(list(too_slow(ADDED_MAX_S + 0.1, 1.0))) == 1
    assert list(too_slow(ADDED_MAX_S + 0.1, 5.0)) == []
