"""What engines print, and users wrote, stands in our log within one field of one line, and commands no terminal."""

import json
import re
import subprocess
import sys

import pytest

FORGED = (
    "x\n2026-11-29T10:00:00.000000Z [error    ] verdict class=hang.stopped",
    'x\r\n{"level": "error", "event": "verdict", "class": "hang.stopped"}',
    "x\x1b[2J\x1b]0;owned\x07\x9b31m",
    "x\x1b[1A\x1b[2K2026-11-29T10:00:00Z [info     ] restarted by somebody",
    "x\u2028event=verdict\u2029\x85\x0b\x0c",
    "\x00\x08\x08\x08\x7f",
    "x\u202etxet\ud800",
)
CODE = """
import json, sys
import structlog
from sentinel.plumbing.logs import set_up
set_up(json_lines=sys.argv[1] == "json")
for text in json.loads(sys.stdin.read()):
    structlog.get_logger().warning("quoted", words=text, engine="sglang:1")
"""
COLOUR = re.compile(r"\x1b\[\d{1,2}m")


def logged(form: str) -> list[str]:
    """The log of a process that quotes all of it; split only where a terminal or a collector of lines would."""
    ran = subprocess.run(
        [sys.executable, "-c", CODE, form],
        input=json.dumps(FORGED).encode(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    return ran.stderr.decode().removesuffix("\n").split("\n")


def test_a_line_for_a_machine_is_one_event_of_ours() -> None:
    """False: a prompt writes a verdict into the log that whoever collects it believes."""
    events = [json.loads(line) for line in logged("json")]

    assert [event["event"] for event in events] == ["quoted"] * len(FORGED)
    assert all(event["engine"] == "sglang:1" and event["words"].isprintable() for event in events)


def test_a_line_for_a_person_is_one_event_and_obeyed_by_no_terminal() -> None:
    """False: a prompt wipes the screen of the person on call, or writes a line that looks like ours."""
    lines = [COLOUR.sub("", line) for line in logged("terminal")]

    assert len(lines) == len(FORGED) and all(line.isprintable() for line in lines)
    assert all("quoted" in line and re.match(r"\d{4}-\d\d-\d\dT\S+ \[warning", line) for line in lines)


@pytest.mark.parametrize("form", ["json", "terminal"])
def test_what_is_quoted_can_still_be_read(form: str) -> None:
    """False: the cure hides the evidence."""
    assert "hang.stopped" in logged(form)[0] and "owned" in logged(form)[2]
