"""`sentinel analyze`: what it prints where, and what its exit status states."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sentinel.cli import Exit
from sentinel.cli.analyze import status_of
from sentinel.model.verdict import Verdict
from sentinel.testing.corpus import unpack
from tests.tidy import sources

LIMIT_S = 120
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(sources.ROOT / "tests/corpus/recordings.tar.zst", tmp_path_factory.mktemp("recordings"))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the real command in an empty folder, without a terminal."""

    def call(*arguments: str | Path, **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "sentinel", "analyze", *map(str, arguments)],
            cwd=tmp_path, env={**os.environ, **env}, capture_output=True, check=False, timeout=LIMIT_S, text=True,
        )  # fmt: skip

    return call


def test_a_stall_is_told_in_one_screen_and_by_the_exit_status(run: Run, recordings: Path) -> None:
    """False: a script that calls `analyze` takes a stalled engine for a healthy one."""
    done = run(recordings / "stop" / "evidence")

    assert done.returncode == Exit.STALLED
    assert done.stdout.startswith("STALLED  hang.stopped")
    assert len(done.stdout.splitlines()) <= 24 and "\x1b" not in done.stdout
    assert done.stderr == ""


def test_an_engine_without_work_is_not_stalled(run: Run, recordings: Path) -> None:
    """False: an idle engine is restarted."""
    done = run(recordings / "idle" / "evidence")

    assert (done.returncode, done.stdout.split()[:3]) == (Exit.OK, ["NOT", "STALLED", "quiet.idle"])


def test_an_empty_folder_is_blindness_and_not_health(run: Run, tmp_path: Path) -> None:
    """False: evidence that was never collected reads like an engine that works."""
    empty = tmp_path / "empty"
    empty.mkdir()
    done = run(empty)

    assert done.returncode == Exit.BLIND
    assert done.stdout.startswith("CANNOT TELL  unknown")


def test_a_wrong_path_is_a_usage_error(run: Run, tmp_path: Path) -> None:
    """False: a typing error looks like a verdict."""
    done = run(tmp_path / "nowhere")

    assert done.returncode == Exit.USAGE
    assert "does not exist" in done.stderr and done.stdout == ""


def test_json_is_one_object_of_the_contract(run: Run, recordings: Path) -> None:
    """False: a program that reads the verdict breaks, or an escape of the evidence reaches its terminal."""
    done = run(recordings / "stop" / "evidence", "--json")
    told = json.loads(done.stdout)

    assert done.stdout.isascii()
    assert told["schema"] == "sentinel.verdict/1" and told["class"] == "hang.stopped" and told["stalled"] is True
    assert set(told) >= {
        "confidence", "culprits", "victims", "t0", "summary", "evidence", "ruled_out", "missing", "alternatives",
        "actions", "do_not", "skipped",
    }  # fmt: skip
    assert set(told["culprits"]) == {"ranks", "hosts", "pids", "requests"}
    assert set(told["evidence"][0]) == {"fact", "says", "source", "weight", "supports"}
    assert all("class" in other for other in (*told["ruled_out"], *told["alternatives"]))


def test_verbose_lists_facts_and_files(run: Run, recordings: Path) -> None:
    """False: a person who doubts the verdict cannot see what it rests on."""
    told = run(recordings / "stop" / "evidence", "--verbose").stdout

    assert "Facts: " in told and "process.stopped_ranks" in told
    assert "Read " in told and "nvidia_smi" in told


def test_the_report_is_written_beside_the_text(run: Run, recordings: Path, tmp_path: Path) -> None:
    """False: asking for the report loses the verdict on the terminal, or the report is unreadable for others."""
    report = tmp_path / "out.html"
    done = run(recordings / "stop" / "evidence", "--html", report)

    assert done.returncode == Exit.STALLED and done.stdout.startswith("STALLED")
    assert "report written to" in done.stderr
    assert report.read_text().startswith("<!doctype html>") and report.stat().st_mode & 0o444 == 0o444


def test_a_report_can_be_written_to_a_pipe_and_never_replaces_a_device(run: Run, recordings: Path) -> None:
    """False: `--html /dev/null` as root replaces the device by a file."""
    done = run(recordings / "stop" / "evidence", "--html", "/dev/null")

    assert done.returncode == Exit.STALLED
    assert Path("/dev/null").is_char_device()


def test_a_report_that_cannot_be_written_is_told(run: Run, recordings: Path, tmp_path: Path) -> None:
    """False: a full disk or a typing error is a traceback."""
    done = run(recordings / "stop" / "evidence", "--html", tmp_path / "no" / "such" / "folder.html")

    assert done.returncode == Exit.USAGE
    assert "cannot write" in done.stderr and "Traceback" not in done.stderr


def test_a_reader_that_goes_away_does_not_change_the_status(recordings: Path) -> None:
    """False: `sentinel analyze … | head -1` reports another verdict than without the pipe."""
    reading, writing = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-m", "sentinel", "analyze", str(recordings / "idle" / "evidence")],
        stdout=writing, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.close(reading)
    os.close(writing)
    _, stderr = child.communicate(timeout=LIMIT_S)

    assert (child.returncode, stderr) == (Exit.OK, b"")


def test_a_defect_of_ours_is_not_a_verdict() -> None:
    """False: an uncaught exception exits with 1, which means "stalled"."""
    code = "import sentinel.cli as c; c.VERBS = {'broken': ''}; c.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "broken"], capture_output=True, check=False, timeout=LIMIT_S, text=True
    )

    assert done.returncode == Exit.BUG
    assert "ModuleNotFoundError" in done.stderr


@pytest.mark.parametrize(("stalled", "status"), [(True, Exit.STALLED), (False, Exit.OK), (None, Exit.BLIND)])
def test_the_status_states_the_verdict(stalled: bool | None, status: Exit) -> None:
    """False: "cannot see" exits like "healthy"."""
    assert status_of(Verdict(kind="unknown", stalled=stalled, confidence="low", summary="")) is status
