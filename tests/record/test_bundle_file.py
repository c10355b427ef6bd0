"""The bundle as a file: the same bytes every time, within its budgets, with a reason for everything absent."""

import tarfile
from pathlib import Path

import pytest
import zstandard

from sentinel.evidence.load import load
from sentinel.record.bundle import BundleError, Order, create
from sentinel.record.reader import Bundle
from tests.record.bundle_making import INCIDENT, KEY, incident, judged


def made(home: Path, target: Path, order: Order | None = None) -> Path:
    create(home, target, order or Order(key=KEY))
    return target


def test_making_it_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    """False: two bundles of one incident cannot be told to be the same, and no checksum can be published."""
    home = incident(tmp_path)

    assert made(home, tmp_path / "a.tar.zst").read_bytes() == made(home, tmp_path / "b.tar.zst").read_bytes()


def test_members_are_plain_files_of_nobody_at_the_time_of_the_incident(tmp_path: Path) -> None:
    """False: an archive tells who made it when, or unpacks into something else than files."""
    bundle = made(incident(tmp_path), tmp_path / "a.tar.zst")
    with (
        bundle.open("rb") as raw,
        zstandard.ZstdDecompressor().stream_reader(raw) as plain,
        tarfile.open(fileobj=plain, mode="r|") as tar,
    ):
        members = list(tar)

    assert [member.name for member in members] == sorted(member.name for member in members)
    assert {(member.uid, member.gid, member.mode, member.isreg()) for member in members} == {(0, 0, 0o640, True)}
    assert {int(member.mtime) for member in members} == {1_795_946_440}


def test_the_manifest_says_why_things_are_absent(tmp_path: Path) -> None:
    """False: a stack that could not be taken looks like a stack that nobody wanted."""
    home = incident(tmp_path)
    (home / "evidence" / "empty.log").touch()
    with Bundle(made(home, tmp_path / "a.tar.zst")) as bundle:
        absent = {(one.what, one.why) for one in bundle.manifest.absent}

    assert ("pystack of 4711 (pass 2)", "not finished after 5 s") in absent
    assert ("empty.log", "empty") in absent


def test_the_timeline_has_both_clocks(tmp_path: Path) -> None:
    """False: nobody can lay the incident beside a log after the wall clock was set."""
    with Bundle(made(incident(tmp_path), tmp_path / "a.tar.zst")) as bundle:
        moments = bundle.manifest.timeline

    assert [moment.what for moment in moments] == ["suspected", "start_capture", "judged"]
    assert [moment.mono_s for moment in moments] == [100.0, 101.0, 102.0]
    assert all(moment.wall.startswith("2026-11-29T") for moment in moments)


def test_large_logs_lose_their_start_and_the_manifest_says_so(tmp_path: Path) -> None:
    """False: the last lines before a hang are cut off, or a cut log passes for a whole one."""
    home = incident(tmp_path, text="\n".join(f"[2026-11-29 10:01:00 TP0] Decode batch {n}" for n in range(9_000)))
    with Bundle(made(home, tmp_path / "a.tar.zst", Order(key=KEY, bytes_max=64 << 10))) as bundle:
        log = next(member for member in bundle.manifest.files if member.path == "evidence/engine.log")
        lines = list(bundle.lines(log.path))
        problems = list(bundle.problems())

    assert log.truncated_from is not None and log.size < 64 << 10 < log.truncated_from
    assert lines[-1].endswith("batch 8999") and lines[0].startswith("[2026") and problems == []


def test_what_cannot_be_made_small_enough_is_refused_and_leaves_no_file(tmp_path: Path) -> None:
    """False: a disk fills with bundles, or half a bundle lies where a whole one is expected."""
    target = tmp_path / "a.tar.zst"
    with pytest.raises(BundleError):
        made(incident(tmp_path), target, Order(key=KEY, packed_bytes_max=10))

    assert list(tmp_path.glob("*a.tar*")) == []


def test_a_bundle_that_was_not_redacted_says_so(tmp_path: Path) -> None:
    """False: a bundle full of prompts is passed on because it looks like any other."""
    home = incident(tmp_path, text="[2026-11-29 10:01:00 TP0] prompt: 'tell me a secret'")
    with Bundle(made(home, tmp_path / "a.tar.zst", Order(key=None))) as bundle:
        assert bundle.manifest.raw and list(bundle.problems()) == []
        assert any("tell me a secret" in line for line in bundle.lines("evidence/engine.log"))


def test_a_bundle_is_evidence_and_its_own_records_are_not(tmp_path: Path) -> None:
    """False: what the agent wrote about an incident is taken for something that the engine printed."""
    home = incident(tmp_path, text="[2026-11-29 10:01:00 TP0] Watchdog timeout (self.watchdog_timeout=60)")
    loaded = load(made(home, tmp_path / "a.tar.zst"))
    read = {name.partition("!")[2] for name, readers in loaded.read_by.items() if readers}

    assert read == {"evidence/engine.log", "evidence/py-spy-4711.txt"}
    assert judged(loaded).kind == judged(load(home / "evidence")).kind


def test_the_incident_is_named_after_itself(tmp_path: Path) -> None:
    """False: bundles of different incidents are mixed up."""
    with Bundle(made(incident(tmp_path), tmp_path / "a.tar.zst")) as bundle:
        assert bundle.manifest.bundle.startswith("inc_20261129T")
        assert bundle.manifest.incident == INCIDENT and bundle.manifest.engine == "sglang:4711"
