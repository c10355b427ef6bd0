"""The statistics of rare hangs, against published figures of exact methods."""

import math
import random

import pytest

from sentinel_engine.load import chance


@pytest.mark.parametrize(("hangs", "cases", "clean"), [(1, 26, 494), (2, 50, 172), (3, 75, 127),
                                                       (4, 100, 110), (6, 150, 96)])  # fmt: skip
def test_how_many_clean_cases_it_takes(hangs: int, cases: int, clean: int) -> None:
    """False: an experiment is stopped while chance still explains the difference."""
    assert chance.fisher(hangs, cases, 0, clean) <= 0.05
    assert chance.fisher(hangs, cases, 0, clean - 1) > 0.05


@pytest.mark.parametrize(("cases", "upper"), [(92, 0.032), (300, 0.010), (598, 0.005)])
def test_no_hang_is_not_a_rate_of_zero(cases: int, upper: float) -> None:
    """False: thirty clean minutes are reported as proof."""
    assert chance.share_upper(0, cases) == pytest.approx(upper, rel=0.02)


def test_a_rate_of_one_in_25_is_excluded_after_74_clean_cases() -> None:
    """False: the planned exposure is too short for the claim it shall support."""
    assert chance.share_upper(0, 74) < 1 / 25 < chance.share_upper(0, 73)


def test_intervals_at_the_edges() -> None:
    """False: an arm with nothing but hangs, or with none, breaks the report."""
    assert chance.share_interval(0, 10)[0] == 0 and chance.share_interval(10, 10)[1] == 1
    low, high = chance.time_interval(0, 3600)
    assert low == 0 and high * 3600 == pytest.approx(-math.log(0.025), rel=1e-6)
    low, high = chance.time_interval(5, 1)
    assert low == pytest.approx(1.6235, abs=1e-4) and high == pytest.approx(11.6683, abs=1e-4)


def test_intervals_cover_a_known_rate() -> None:
    """False: the interval is narrower than it says, and the truth lies outside too often."""
    draw = random.Random(1)
    covered = 0
    for _ in range(400):
        hangs = sum(draw.random() < 0.04 for _ in range(100))
        low, high = chance.share_interval(hangs, 100)
        covered += low <= 0.04 <= high
    assert covered >= 0.95 * 400


def test_arms_are_compared_and_errors_are_no_exposure() -> None:
    """False: a failed start counts as a clean case, or the arm with fewer hangs is blamed."""
    def case(arm: str, outcome: str) -> dict[str, object]:
        wall_s = 80.0 if outcome == "hang" else 20.0
        return {"kind": "case", "arm": arm, "outcome": outcome, "wall_s": wall_s,
                "silence_s": 60.0}  # fmt: skip

    cases = [case("ram", "clean")] * 96 + [case("ram", "error")] * 9
    cases += [case("nvme", "clean")] * 144 + [case("nvme", "hang")] * 6
    nvme, ram, test = chance.compare(cases)
    assert (nvme["arm"], nvme["hangs"], nvme["cases"]) == ("nvme", 6, 150)
    assert nvme["seconds"] == pytest.approx(3000)
    assert (ram["cases"], ram["hangs"], ram["seconds"]) == (96, 0, pytest.approx(1920))
    assert (test["more"], test["less"]) == ("nvme", "ram")
    assert test["p_one_sided"] == pytest.approx(0.05, abs=0.003)
    assert test["p_two_sided"] == 2 * test["p_one_sided"]
