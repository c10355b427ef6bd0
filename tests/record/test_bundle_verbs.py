"""`sentinel bundle`: each verb does what its help says, and the exit status says how it went."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sentinel.cli import sentinel
from tests.record.bundle_making import incident


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own, so that no key of this machine is used."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    return tmp_path


def run(*args: object) -> Result:
    return CliRunner().invoke(sentinel, ["bundle", *map(str, args)])


def make(home: Path, target: Path, *options: object) -> Path:
    done = run("create", home, "--out", target, *options)
    assert done.exit_code == 0, done.output
    return target


def test_an_incident_is_found_by_its_id_and_made_again_alike(shell: Path) -> None:
    """False: an operator must know where the agent keeps things, or gets another bundle the second time."""
    incident(shell / "state" / "incidents")
    first = make(Path("sglang-4711-1"), shell / "a.tar.zst", "--state", shell / "state")
    second = make(Path("sglang-4711-1"), shell / "b.tar.zst", "--state", shell / "state")

    assert first.read_bytes() == second.read_bytes()
    assert (shell / "state" / "bundle.key").stat().st_mode & 0o777 == 0o600


def test_show_ls_and_verify_tell_what_is_inside(shell: Path) -> None:
    """False: the person who receives a bundle cannot tell what it is without unpacking it."""
    bundle = make(incident(shell), shell / "a.tar.zst")
    shown, listed, verified = run("show", bundle), run("ls", bundle), run("verify", bundle)

    assert "redacted (key " in shown.output and "unknown, low confidence" in shown.output
    assert "absent: pystack of 4711 (pass 2): not finished after 5 s" in shown.output
    assert "run_batch (managers/scheduler.py)" in shown.output
    assert "evidence/engine.log" in listed.output and "report.html" in listed.output
    assert verified.exit_code == 0 and "sound: " in verified.output


def test_verify_fails_with_one_and_an_unusable_file_with_two(shell: Path) -> None:
    """False: a script cannot tell a damaged bundle from a sound one, or from a wrong file name."""
    bundle = make(incident(shell), shell / "a.tar.zst")
    data = bytearray(bundle.read_bytes())
    data[-20] ^= 0xFF
    bundle.write_bytes(data)
    (shell / "text").write_text("no bundle\n")

    assert run("verify", bundle).exit_code == 1
    unusable = CliRunner().invoke(sentinel, ["bundle", "verify", str(shell / "text")], standalone_mode=False)
    assert "no bundle" in str(unusable.exception)


def test_diff_tells_settings_stacks_and_verdict_apart(shell: Path) -> None:
    """False: two incidents look alike, or everything looks different because numbers of lines moved."""
    one = incident(shell / "one")
    other = incident(shell / "other")
    (one / "evidence" / "environ").write_text("NCCL_DEBUG=INFO\nNCCL_ALGO=Ring\n")
    (other / "evidence" / "environ").write_text("NCCL_DEBUG=INFO\nNCCL_ALGO=Tree\n")
    stack = other / "evidence" / "py-spy-4711.txt"
    stack.write_text(stack.read_text().replace(":1088)", ":1099)").replace("acquire (threading.py", "read (file.py"))
    (other / "verdict.json").write_bytes(
        (other / "verdict.json").read_bytes().replace(b'"class":"unknown"', b'"class":"hang.python"')
    )
    said = run("diff", make(one, shell / "a.tar.zst"), make(other, shell / "b.tar.zst")).output

    assert "class: unknown -> hang.python" in said
    assert "setting NCCL_ALGO: Ring -> Tree" in said and "NCCL_DEBUG" not in said
    assert "stack sglang::scheduler_TP#: 1 (ranks 0) -> 0 in" in said and "    read (file.py)" in said
    assert "1088" not in said and "keys:" not in said


def test_grep_finds_lines_and_shows_control_characters(shell: Path) -> None:
    """False: a log line of a stranger sends commands to the terminal of whoever looks for it."""
    home = incident(shell, text="[2026-11-29 10:01:00 TP0] Watchdog timeout \x1b]0;owned\x07 \u202e end")
    bundle = make(home, shell / "a.tar.zst", "--no-redact")
    found = run("grep", "watchdog", bundle, "-i")

    assert found.exit_code == 0 and "evidence/engine.log:31: " in found.output
    assert "\x1b" not in found.output and "\u202e" not in found.output
    assert run("grep", "nothing like this", bundle).exit_code == 1


def test_a_raw_bundle_is_marked_and_can_be_redacted_later(shell: Path) -> None:
    """False: a raw bundle is passed on unnoticed, or redacting it loses the verdict."""
    home = incident(shell, text="[2026-11-29 10:01:00 TP0] prompt: 'quokkas for breakfast'")
    raw = make(home, shell / "raw.tar.zst", "--no-redact")
    done = run("redact", raw, shell / "safe.tar.zst")

    assert "RAW" in run("show", raw).output and "RAW" in run("verify", raw).output
    assert done.exit_code == 0, done.output
    assert run("grep", "quokkas", raw).exit_code == 0
    assert run("grep", "quokkas", shell / "safe.tar.zst").exit_code == 1
    assert run("verify", shell / "safe.tar.zst").exit_code == 0
    assert "absent: pystack of 4711 (pass 2)" in run("show", shell / "safe.tar.zst").output


def test_the_report_is_written_beside_and_inside(shell: Path) -> None:
    """False: whoever has no terminal at hand cannot read the bundle."""
    bundle = make(incident(shell), shell / "a.tar.zst", "--no-report")
    assert "report.html" not in run("ls", bundle).output
    assert run("report", bundle).exit_code == 0
    assert run("report", bundle, "--into", shell / "with.tar.zst").exit_code == 0

    assert (shell / "a.html").read_text().startswith("<!doctype html>")
    assert "report.html" in run("ls", shell / "with.tar.zst").output
    assert run("verify", shell / "with.tar.zst").exit_code == 0


def test_a_bundle_can_be_judged_and_exported(shell: Path) -> None:
    """False: a bundle must be unpacked by hand before it is of any use."""
    bundle = make(incident(shell), shell / "a.tar.zst")
    judged = CliRunner().invoke(sentinel, ["analyze", str(bundle), "--json"])
    exported = run("export", bundle, shell / "out")

    assert '"schema": "sentinel.verdict/1"' in judged.output
    assert exported.exit_code == 0 and (shell / "out" / "evidence" / "engine.log").is_file()
    assert run("export", bundle, shell / "out").exit_code != 0
