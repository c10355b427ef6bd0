"""The command line: what operators type, and the exit status that scripts read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tables import LAYER, expected_rows, some_ids

from sentinel_engine.rowstore import Store
from sentinel_engine.rowstore.cli import Exit, main


def out(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    answer: dict[str, object] = json.loads(capsys.readouterr().out)
    return answer


def test_pack_verify_info_gather(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = str(tmp_path / "t.rws")
    assert main(["--json", "pack", table, "--layer", "7", "--formula-rows", "1000"]) == Exit.OK
    assert out(capsys)["rows"] == 1000
    assert main(["--json", "verify", table]) == Exit.OK
    assert out(capsys)["verdict"] == "good"
    assert main(["--json", "info", table]) == Exit.OK
    assert out(capsys)["code_type"] == "e4m3"
    assert main(["--json", "gather", table, "3", "999"]) == Exit.OK
    ids = some_ids(1)
    ids[0] = 999
    assert out(capsys)["row 999"] == expected_rows(ids, layer=LAYER)[0].tobytes().hex()


def test_fp4_and_ranges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = str(tmp_path / "t.rws")
    assert main(["pack", table, "--layer", "1", "--formula-rows", "1", "--fp4", "--huge-offset",
                 "--range", "0:5:100", "--range", "3:900:50"]) == Exit.OK
    capsys.readouterr()
    assert main(["--json", "info", table]) == Exit.OK
    shown = out(capsys)
    assert (shown["rows"], shown["rows_per_page"], shown["data_offset"]) == (150, 29, 2 << 20)


def test_a_damaged_table_is_not_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "t.rws"
    main(["pack", str(table), "--layer", "7", "--formula-rows", "100"])
    with table.open("r+b") as file:
        file.seek(5000)
        file.write(b"x")
    capsys.readouterr()

    assert main(["verify", str(table)]) == Exit.NOT_WELL
    assert "stage the file again" in capsys.readouterr().out
    assert main(["gather", str(table), "0", "1", "2", "3", "4"]) == Exit.NOT_WELL
    assert "corrupt" in capsys.readouterr().err


def test_bench_reports_a_rate(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--json", "bench", str(table), "--seconds", "0.2", "--batch", "32"]) == Exit.OK
    shown = out(capsys)
    assert isinstance(shown["rows_per_s"], int) and shown["rows_per_s"] > 0


def test_mode_and_its_refusal(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control = tmp_path / "ctl"
    with Store(table, mode="nvme", lanes=1, control=control, reserve_bytes=0):
        assert main(["--json", "mode", str(control), "ram"]) == Exit.OK
        assert out(capsys)["mode"] == "ram"
    with Store(table, mode="nvme", lanes=1, control=control, reserve_bytes=1 << 45):
        assert main(["mode", str(control), "ram"]) == Exit.NOT_WELL
        assert "must stay free" in capsys.readouterr().out


def test_nobody_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["unblock", str(tmp_path / "none"), "0"]) == Exit.NO_ANSWER
    assert "rowstore stat" in capsys.readouterr().err


def test_the_control_socket_is_private(table: Path, tmp_path: Path) -> None:
    control = tmp_path / "ctl"
    with Store(table, mode="nvme", lanes=1, control=control):
        assert control.stat().st_mode & 0o777 == 0o600
    assert not control.exists()


def test_a_wrong_page_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page"
    page.write_bytes(b"x" * 65536)

    assert main(["stat", str(page)]) == Exit.NOT_WELL
    assert "magic" in capsys.readouterr().err


def test_the_command_runs_as_a_module() -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "sentinel_engine.rowstore.cli", "--help"], capture_output=True,
        text=True, check=True,
    )

    for verb in ("pack", "verify", "info", "gather", "stat", "mode", "unblock", "bench"):
        assert verb in shown.stdout
