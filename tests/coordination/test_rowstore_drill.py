"""The row-store drill: that each of its expectations can fail, what its page shows, and one run for real."""

import re
import tomllib
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from sentinel.cli.drill import command
from sentinel.model.cluster import Told
from sentinel.model.group import Ack
from sentinel.model.verdict import Culprits, Verdict
from sentinel.plumbing.clock import SystemClock
from sentinel.testing.packaged.engine import PackagedEngine, installed
from sentinel.testing.packaged.expectations import Seen, complaints
from sentinel.testing.packaged.namespaces import Namespaces
from sentinel.testing.packaged.rowstore import RowstoreDrill, RowstoreOutcome
from sentinel.testing.packaged.telling import timeline, with_page
from sentinel.testing.packaged.variants import LEGACY, PLAIN, RAM, VARIANTS, Variant, named

SCALE = 4.0
JUDGED = Verdict(
    kind="hang.host_callback", confidence="high", stalled=True, summary="rank 1 waits", culprits=Culprits(ranks=(1,))
)


def told(what: str, words: str) -> Told:
    """A notice."""
    return Told(what=what, key=f"{what}/{words}", severity="info", words=words)


def as_it_should_be(variant: Variant) -> Seen:
    """What is seen when everything about a variant is right."""
    worked = "restart worked, as observed" if variant.ends == "closed" else f"{variant.guard}: because"
    return Seen(
        time_scale=1.0,
        verdict=JUDGED,
        captured_s=70.0 if variant.keeps_evidence else None,
        kill_due_s=300.0,
        bundle=variant.keeps_evidence,
        told=(told("said", variant.says), *(told(variant.ends, worked) for _ in range(variant.closings))),
        stops=tuple(Ack(id="i/restart1/stop/here", host="here", outcome=outcome) for outcome in variant.stops),
        stop_s=80.0 if variant.stops else None,
        added_s=15.0 if variant.stops else None,
        token_s=100.0 if variant.ends == "closed" else None,
        still_runs=not variant.acts,
        killed=bool(variant.victim),
        launches=variant.launches,
        relaunches=variant.relaunches,
        mode=variant.modes[0],
    )


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_what_is_right_is_not_complained_of_and_a_missing_verdict_is(variant: Variant) -> None:
    """False: a variant passes whatever happens, or never passes."""
    right = as_it_should_be(variant)

    assert list(complaints(variant, right)) == []
    assert list(complaints(variant, msgspec.structs.replace(right, verdict=None))) == ["no verdict"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verdict": msgspec.structs.replace(JUDGED, culprits=Culprits(ranks=(0,)))}, "judged"),
        ({"captured_s": None}, "no evidence"),
        ({"captured_s": 301.0, "stop_s": 400.0}, "own kill was due"),
        ({"captured_s": 81.0}, "stopped before its evidence"),
        ({"bundle": False}, "no bundle"),
        ({"stops": ()}, "wanted stops"),
        ({"still_runs": True}, "still runs"),
        ({"told": (told("closed", "no host runs the engine any more"),)}, "did not end"),
        ({"token_s": None}, "no token"),
        ({"launches": 3}, "launched 3 times"),
        ({"relaunches": 0}, "counted 0 relaunches"),
        ({"mode": LEGACY}, "wanted ram"),
        ({"added_s": 20.5}, "20 s are allowed"),
    ],
)  # fmt: skip
def test_each_thing_that_is_wrong_is_complained_of(change: dict[str, object], words: str) -> None:
    """False: the drill is passed by a Sentinel that is late, blames the wrong rank, or leaves the engine down."""
    found = list(complaints(PLAIN, msgspec.structs.replace(as_it_should_be(PLAIN), **change)))

    assert len(found) == 1 and words in found[0]


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("unverified-stop", {"stops": (Ack(id="s", host="here", outcome="unverified"),) * 2}, "wanted stops"),
        ("unverified-stop", {"launches": 2}, "launched 2 times"),
        ("no-room-in-ram", {"told": (told("closed", "restart worked"),)}, "does not fit"),
        ("paused", {"still_runs": False}, "was stopped"),
        ("paused", {"told": (told("refused", "hold: it has stood still"),)}, "`paused` was not told"),
        ("agent-stop", {"killed": False}, "was never seen in phase stop"),
        ("unblock", {"told": (told("closed", "unblock worked, as observed"),)}, "did not end"),
    ],
)
def test_each_variant_has_something_of_its_own_that_can_fail(name: str, change: dict[str, object], words: str) -> None:
    """False: a variant only repeats the plain drill under another name."""
    variant = named(name)
    assert variant is not None
    found = list(complaints(variant, msgspec.structs.replace(as_it_should_be(variant), **change)))

    assert len(found) == 1 and words in found[0]


def test_on_gpus_each_node_has_one_of_its_own_and_they_speak_over_the_network(tmp_path: Path) -> None:
    """If false, both ranks meet on one GPU, which NCCL refuses, or no network would be between the two nodes."""
    both = Namespaces(("a", "b"), ("10.0.0.1", "10.0.0.2"))
    found = tomllib.loads(PackagedEngine(tmp_path, both, device="cuda").cluster_file())
    assert found["engine"]["device"] == "cuda"
    assert [node["env"]["CUDA_VISIBLE_DEVICES"] for node in found["nodes"]] == ["0", "1"]
    assert all(node["env"]["NCCL_P2P_DISABLE"] == node["env"]["NCCL_SHM_DISABLE"] == "1" for node in found["nodes"])


def test_only_drills_of_the_packaged_engine_take_a_device() -> None:
    """If false, a drill on the CPU would pass for one on GPUs."""
    ran = CliRunner().invoke(command, ["deadlock", "--device", "cuda"])
    assert ran.exit_code == 2
    assert "--device belongs to the drills hostcallback and rowstore" in ran.output


def test_the_page_shows_what_happened_and_loads_nothing(tmp_path: Path) -> None:
    """False: what a log said is run by the browser of whoever opens the timeline, or the order of events is lost."""
    outcome = RowstoreOutcome(
        variant="plain",
        about="about it",
        layout="one node",
        events=((-3.0, "drill", "before"), (0.0, "drill", "reads <script>hang</script>"), (61.5, "host", "one\ntwo")),
        complaints=("late & wrong",),
        folder=str(tmp_path),
        seen=as_it_should_be(PLAIN),
    )
    told_of = with_page(outcome)
    page = Path(told_of.page).read_text()

    assert [found for found in ("before", "&lt;script&gt;hang", "one", "two") if found not in page] == []
    assert page.index(">before") < page.index(">reads") < page.index("61.5") < page.index(">two")
    assert "late &amp; wrong" in page and "<script" not in page and not re.search(r"(?:src|href)=.(?!data:)", page)
    lines = timeline(told_of)
    assert lines[0].startswith("FAIL rowstore plain") and any("From verdict and hold" in line for line in lines)
    assert any(told_of.page in line for line in lines)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not installed(), reason="needs the packaged engine beside this Python (`make engine`)")
def test_the_packaged_engine_is_brought_back_in_ram_mode(tmp_path_factory: pytest.TempPathFactory) -> None:
    """False: the parts work and a hanging engine still waits for its watchdog, or comes back to hang again."""
    outcome = RowstoreDrill(SystemClock(), tmp_path_factory.mktemp("d"), SCALE).run()

    assert outcome.passed, "\n".join(timeline(outcome))
    assert outcome.seen.mode == RAM and outcome.seen.relaunches == 1
