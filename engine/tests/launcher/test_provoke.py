"""The provoke loop against a real server that hangs when a test says so."""

import json
import sys
from pathlib import Path

import pytest
from tiny_server import Behaviour, serving

from sentinel_engine.cli import main

SMALL = ["--input", "16", "--output", "4", "--concurrency", "2"]
# One calibrating request, then two a case.
CASE_3_HANGS = 1 + 2 * 3 + 1


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_clean_run_ends_with_its_budget(tmp_path: Path) -> None:
    """False: the loop runs for ever, or its cases cannot be told apart afterwards."""
    out = tmp_path / "ram.jsonl"
    with serving(Behaviour()) as url:
        code = main(["provoke", "--url", url, "--arm", "ram", "--cases", "5", "--out", str(out),
                     *SMALL])  # fmt: skip
    assert code == 0
    cases = lines(out)
    assert [case["case"] for case in cases] == [0, 1, 2, 3, 4]
    assert {case["outcome"] for case in cases} == {"clean"}
    assert all(case["tokens"] == 8 and case["moved"] == {"seen_total": 2} for case in cases)


def test_it_stops_at_the_first_hang(tmp_path: Path) -> None:
    """False: the hung engine is loaded on, and its evidence is lost."""
    out = tmp_path / "o"
    with serving(Behaviour(hang_from_request=CASE_3_HANGS)) as url:
        code = main(["provoke", "--url", url, "--arm", "nvme", "--cases", "50", "--out", str(out),
                     "--silence-s", "1", *SMALL])  # fmt: skip
    assert code == 1
    assert [case["outcome"] for case in lines(out)] == ["clean"] * 3 + ["hang"]


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """False: a restart of the engine starts the count anew, and the exposure is wrong."""
    out = tmp_path / "o"
    command = ["provoke", "--arm", "a", "--out", str(out), *SMALL]
    with serving(Behaviour()) as url:
        assert main([*command, "--url", url, "--cases", "2"]) == 0
        with out.open("a") as file:
            file.write('{"kind": "case", "torn')
        assert main([*command, "--url", url, "--cases", "3"]) == 0
        assert main([*command, "--url", url, "--cases", "4"]) == 0
    good = [line for line in out.read_text().splitlines() if not line.endswith("torn")]
    assert [json.loads(line)["case"] for line in good] == [0, 1, 2, 3]


def test_the_hook_sees_the_case_and_the_loop_goes_on(tmp_path: Path) -> None:
    """False: no evidence is taken, or one hang is all that a night can find."""
    out, seen = tmp_path / "o", tmp_path / "seen"
    script = f"import os; open({str(seen)!r}, 'a').write(os.environ['SENTINEL_CASE'] + chr(10))"
    hook = f'{sys.executable} -c "{script}"'
    with serving(Behaviour(hang_from_request=CASE_3_HANGS)) as url:
        main(["provoke", "--url", url, "--arm", "nvme", "--cases", "9", "--hangs", "2",
              "--out", str(out), "--silence-s", "1", "--on-hang", hook, *SMALL])  # fmt: skip
    cases = lines(out)
    assert [case["outcome"] for case in cases] == ["clean"] * 3 + ["hang"] * 2
    assert [case.get("hook") for case in cases[3:]] == ["exit 0", "exit 0"]
    assert [case["case"] for case in lines(seen)] == [3, 4]


def test_a_hook_that_cannot_run_is_recorded(tmp_path: Path) -> None:
    """False: one believes that evidence was taken."""
    out = tmp_path / "o"
    with serving(Behaviour(hang_from_request=2)) as url:
        main(["provoke", "--url", url, "--arm", "a", "--out", str(out), "--silence-s", "1",
              "--on-hang", str(tmp_path / "none"), *SMALL])  # fmt: skip
    assert str(lines(out)[0]["hook"]).startswith("not started")


def test_errors_in_a_row_end_the_run(tmp_path: Path) -> None:
    """False: one failed batch ends a night's run, or a dead engine is asked until morning."""
    out = tmp_path / "o"
    with serving(Behaviour(error_from_request=4)) as url:
        code = main(["provoke", "--url", url, "--arm", "a", "--cases", "9", "--out", str(out),
                     *SMALL])  # fmt: skip
    assert code == 1
    assert [case["outcome"] for case in lines(out)] == ["clean"] + ["error"] * 3
    assert "gather failed" in str(lines(out)[1]["detail"])


def test_odds_compares_arms_of_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """False: the runs are there and nobody can say what they show."""
    files = []
    for arm, hung in (("ram", 0), ("nvme", 3)):
        files.append(tmp_path / arm)
        rows = [{"kind": "case", "arm": arm, "wall_s": 80, "silence_s": 60,
                 "outcome": "hang" if k < hung else "clean"} for k in range(75)]  # fmt: skip
        files[-1].write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["--json", "odds", *map(str, files)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row.get("arm") for row in rows] == ["nvme", "ram", None]
    assert rows[2]["p_one_sided"] == pytest.approx(0.1225, abs=0.001)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    """False: cases are appended to a log, and the statistics read half of it."""
    other = tmp_path / "log"
    other.write_text("not json\nat all\n")
    with serving(Behaviour()) as url:
        assert main(["provoke", "--url", url, "--arm", "a", "--out", str(other), *SMALL]) == 1
    assert other.read_text() == "not json\nat all\n"
