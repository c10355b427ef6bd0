"""Nothing that users wrote, nothing that opens doors, and nobody's name leaves the machine in a bundle."""

from pathlib import Path

import pytest

from sentinel.evidence.load import load
from sentinel.record.bundle import Order, create
from sentinel.record.manifest import decode
from sentinel.record.pseudonyms import Pseudonyms
from sentinel.record.reader import Bundle
from sentinel.record.redact import RULES, Lines, Redactor
from tests.record.bundle_canaries import CANARIES, HOST, SOURCES, plant
from tests.record.bundle_making import KEY, judged


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a redacted bundle of everything planted."""
    root = tmp_path_factory.mktemp("canaries")
    evidence = plant(root / "evidence-folder")
    loaded = load(evidence)
    create(evidence, root / "bundle.tar.zst", Order(key=KEY), judged(loaded), loaded)
    with Bundle(root / "bundle.tar.zst") as bundle:
        assert list(bundle.problems()) == []
        bundle.export(root / "opened")
    return root / "opened"


def test_no_canary_survives_in_any_file_or_name(opened: Path) -> None:
    """False: a prompt, a key or a customer's name is mailed to a vendor inside an incident bundle."""
    files = [path for path in opened.rglob("*") if path.is_file()]
    leaks = {
        f"{path.relative_to(opened)}: {canary}"
        for path in files
        for canary in CANARIES
        if canary.lower() in f"{path.relative_to(opened)}\n{path.read_text(errors='replace')}".lower()
    }

    assert len(files) == len(SOURCES) + 2 and leaks == set()


def test_every_canary_is_planted(tmp_path: Path) -> None:
    """False: the search above looks for something that was never there."""
    folder = plant(tmp_path / "raw")
    everything = "\n".join(f"{path.name}\n{path.read_text()}" for path in folder.iterdir())

    assert [canary for canary in CANARIES if canary not in everything] == []


def test_what_explains_a_hang_is_still_there(opened: Path) -> None:
    """False: the bundle is safe to pass on because nothing is left in it."""
    log = (opened / "evidence" / "sglang.log").read_text()
    stacks = (opened / "evidence" / "pyspy.txt").read_text()
    nccl = next((opened / "evidence").glob("nccl*")).read_text()

    assert "Decode batch. #running-req: 4, #token: 4096, token usage: 0.10" in log
    assert "Watchdog timeout (self.watchdog_timeout=300" in log and "Req(rid=4f1c" in log
    assert "    recv_requests (sglang/srt/managers/scheduler.py:1088)" in stacks
    assert "AllReduce: opCount 1 sendbuff 0x7f0" in nccl and HOST not in nccl


def test_the_manifest_counts_what_every_rule_did(opened: Path) -> None:
    """False: nobody can tell whether a rule found nothing or never ran."""
    manifest = decode((opened / "manifest.json").read_bytes())
    counts = next(member.redactions for member in manifest.files if member.path == "evidence/sglang.log")

    assert set(counts) == set(RULES)
    for rule in ("content", "pem", "jwt", "provider_key", "url_userinfo", "known_secret", "base64", "name"):
        assert counts[rule] > 0, rule


def test_the_lines_of_a_log_keep_their_numbers(opened: Path) -> None:
    """False: what a verdict cites in the bundle is another line than in the original."""
    raw = SOURCES["sglang.log"].splitlines()
    shown = (opened / "evidence" / "sglang.log").read_text().splitlines()

    assert len(shown) == len(raw)
    assert [number for number, line in enumerate(shown) if "Watchdog" in line] == [
        number for number, line in enumerate(raw) if "Watchdog" in line
    ]


def test_a_line_that_needed_nothing_does_not_let_another_one_pass() -> None:
    """False: a host, an address or a secret passes because it differs from something harmless in its digits only."""
    redactor = Redactor(Pseudonyms(KEY, hosts=("node7",)), literals=("token 4711",))
    lines = Lines(redactor)
    for harmless in (
        "node 1 is ready",
        "node1 is ready",
        "token 1234 is ready",
        "ranks [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]",
    ):
        assert lines.text(harmless) == lines.text(harmless) == harmless

    assert "node7" not in lines.text("node7 is ready")
    assert "node7" not in lines.text("node7:1 at node1") + lines.text("node7:2 at node7") + lines.text(
        "node7:3 at node1"
    )
    assert "4711" not in lines.text("token 4711 is ready")
    assert "9, 1" not in lines.text("ranks [9, 1, 7, 3, 4, 5, 6, 7, 8, 2]")
    assert lines.text("peer 127.0.0.1 is ready").startswith("peer 127.0.0.1")
    assert "192.1.2.3" not in lines.text("peer 192.1.2.3 is ready")
