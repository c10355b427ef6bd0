"""The message on the terminal: order, size, honesty about what is missing, safety of what is printed."""

import re

import pytest

from sentinel.model.verdict import CLASSES, Action, Evidence, RuledOut, Verdict
from sentinel.report import text, words
from sentinel.report.clean import clip, printable
from tests.unit import report_cases as cases

HOSTILE = "\x1b[2J\x1b]0;pwned\x07 \x9b31m \u202egnp.exe \u2028 \x00 \udc80 \r\n\t end"


def render(verdict: Verdict, width: int = 100) -> str:
    return text.render(verdict, text.Paper(width=width))


def test_the_first_line_says_state_class_and_confidence() -> None:
    """False: a person woken at 03:00 has to search for the answer."""
    first = render(cases.callback_stall().verdict).splitlines()[0]

    assert first == "STALLED  hang.host_callback  A GPU stream waits for a host callback (high confidence)"


def test_the_sections_come_in_the_order_of_urgency() -> None:
    """False: advice stands before the reason, or what is missing before what is known."""
    labels = [line[: text.LABEL].strip() for line in render(cases.callback_stall().verdict).splitlines()[2:]]

    assert [label for label in labels if label] == [
        "Culprit", "Victims", "Since", "Because", "But", "Traces", "Do", "Do not", "Missing", "To decide", "Or maybe",
        "Ruled out", "Skipped",
    ]  # fmt: skip


def test_the_strongest_evidence_stands_first_and_what_speaks_against_is_apart() -> None:
    """False: a weak hint is read as the reason, or a contradiction as support."""
    lines = render(cases.callback_stall().verdict).splitlines()
    because = next(line for line in lines if line.startswith("Because"))
    against = next(line for line in lines if line.startswith("But"))

    assert "897 enqueues" in because and "[nccl.node2.783.log:1434]" in because
    assert "no kernel log" in against


def test_unknown_is_never_told_as_health() -> None:
    """False: an unreadable folder reads like an engine that works."""
    message = render(cases.blind().verdict)

    assert message.startswith("CANNOT TELL  unknown")
    assert "an engine log" in message
    assert "core.1 (binary), data.tar (truncated archive)" in message


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_a_crowded_verdict_fits_one_screen(width: int) -> None:
    """False: the verdict scrolls off the terminal and the top line is lost."""
    long = "word " * 60
    crowded = Verdict(
        kind="hang.python",
        stalled=True,
        confidence="low",
        summary=long,
        t0="2026-11-29T17:30:34Z",
        evidence=tuple(
            Evidence(fact="f", says=long, source="file.log:1", weight="weak", supports=number % 2 == 0)
            for number in range(40)
        ),
        ruled_out=tuple(RuledOut(kind="hang.network", because=long) for _ in range(20)),
        missing=(long,) * 20,
        decides=long,
        actions=(Action(action="restart_engine", why=long),) * 9,
        do_not=(Action(action="drain_node", why=long),) * 9,
    )
    lines = render(crowded, width).splitlines()

    assert len(lines) <= text.LINES
    assert max(map(len, lines)) <= width


def test_nothing_is_cut_when_everything_is_asked_for() -> None:
    """False: `--verbose` hides evidence, and a person decides without it."""
    case = cases.callback_stall()
    message = text.render(case.verdict, text.Paper(), case.facts)

    assert "hang.network: one host, no network transport" in message
    assert "collective.counts_equal = yes  [nccl.0.log:1434]" in message
    assert "2 known, 1 unknown" in message


def test_no_control_character_of_the_evidence_reaches_the_terminal() -> None:
    """False: a log line moves the cursor, sets the title or hides text of the person who reads the verdict."""
    case = cases.hostile(HOSTILE)
    for message in (render(case.verdict), text.render(case.verdict, text.Paper(), case.facts)):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\ud800-\udfff]", message)
        assert "\\x1b[2J" in message
        message.encode()


def test_colour_is_only_sent_where_it_was_asked_for() -> None:
    """False: escape codes end up in files, pipes and tickets."""
    verdict = cases.callback_stall().verdict
    coloured = text.render(verdict, text.Paper(colour=True))

    assert "\x1b[" not in render(verdict)
    assert "\x1b[1;31mSTALLED\x1b[0m" in coloured
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == render(verdict)


def test_every_class_and_action_has_words() -> None:
    """False: the headline of a verdict is empty or a bare identifier."""
    assert set(words.TITLES) == set(CLASSES)
    assert set(words.DEEDS) == set(Action.__annotations__["action"].__args__)


@pytest.mark.parametrize(
    ("numbers", "told"), [([], ""), ([3], "3"), ([1, 2], "1, 2"), ([0, 1, 2, 9, 7, 8], "0-2, 7-9"), ([5, 5], "5")]
)
def test_rank_sets_are_told_short_and_exact(numbers: list[int], told: str) -> None:
    """False: a rank that is not in the set is read as a culprit."""
    assert words.span(numbers) == told


def test_a_switch_and_a_setting_name_their_target() -> None:
    """False: the person does not learn which mode or setting to use."""
    assert words.deed(Action(action="rowstore_mode", to="ram")) == "Switch the row store to ram"
    assert (
        words.deed(Action(action="change_setting", to="NCCL_IB_GID_INDEX=3")) == "Change a setting: NCCL_IB_GID_INDEX=3"
    )
    assert words.deed(Action(action="restart_engine")) == "Restart the engine, all ranks"


def test_cutting_marks_the_cut() -> None:
    """False: half a sentence is taken for the whole."""
    assert clip("abcdef", 4) == "abc…"
    assert clip("abcd", 4) == "abcd"


def test_spelled_out_characters_stay_on_one_line() -> None:
    """False: a newline in a log message forges a line of the verdict."""
    assert printable("a\nSTALLED\r\x85b") == "a\\nSTALLED\\x0d\\x85b"


def test_durations_read_naturally() -> None:
    """False: a person has to divide seconds at 03:00."""
    assert [words.lasting(seconds) for seconds in (0.5, 4, 95, 7300, 200_000)] == [
        "0.5 s", "4 s", "1.6 min", "2.0 h", "2.3 d",
    ]  # fmt: skip
