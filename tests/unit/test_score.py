"""The scorer's conventions: what counts as right, and that an analyser never learns a case's name."""

import io
import tarfile
from pathlib import Path

import pytest
import yaml
import zstandard

from sentinel.model.verdict import Action, ActionName, Confidence, Culprits, Verdict
from sentinel.scoring.ablate import judge_outcome, source_of
from sentinel.scoring.cases import Case, found_in, neutral, opened
from sentinel.scoring.expected import Expected, LabelError, read_expected
from sentinel.scoring.marks import mark
from sentinel.scoring.run import Measured, score_case
from sentinel.scoring.summary import confusion_lines, line, summarise, totals
from sentinel.testing.corpus import CorpusError, pack, unpack

LABEL = {
    "classes": ["hang.python", "hang.rank_divergence"],
    "stalled": True,
    "culprit_ranks": [2],
    "culprit_hosts": None,
    "must_recommend": ["restart_engine|capture_more"],
    "must_not_recommend": ["drain_node"],
}


def verdict(
    kind: str = "hang.python",
    *,
    stalled: bool | None = True,
    ranks: tuple[int, ...] = (2,),
    hosts: tuple[str, ...] = (),
    actions: tuple[ActionName, ...] = ("restart_engine",),
    confidence: Confidence = "high",
) -> Verdict:
    """A verdict that fits LABEL unless told otherwise."""
    return Verdict(
        kind=kind,
        stalled=stalled,
        confidence=confidence,
        culprits=Culprits(ranks=ranks, hosts=hosts),
        summary="",
        actions=tuple(Action(action=action) for action in actions),
    )


def labelled(folder: Path, **changes: object) -> Expected:
    """LABEL with changes, written to a file and read back."""
    path = folder / "expected.yaml"
    path.write_text(yaml.safe_dump({**LABEL, **changes}))
    return read_expected(path)


@pytest.fixture
def label(tmp_path: Path) -> Expected:
    """LABEL as the scorer reads it."""
    return labelled(tmp_path)


def test_a_verdict_as_labelled_is_right(label: Expected) -> None:
    """Otherwise nothing would ever pass."""
    assert mark(verdict(), label).right


@pytest.mark.parametrize(
    ("wrong", "missed"),
    [
        (verdict("hang.network"), "class"),
        (verdict(stalled=None), "stalled"),
        (verdict(ranks=()), "ranks"),
        (verdict(ranks=(2, 3)), "ranks"),
        (verdict(actions=("wait",)), "actions"),
        (verdict(actions=("restart_engine", "drain_node")), "forbidden:drain_node"),
    ],
)
def test_each_disagreement_alone_makes_a_verdict_wrong(label: Expected, wrong: Verdict, missed: str) -> None:
    """Otherwise one part of the label would not be scored."""
    assert mark(wrong, label).misses == (missed,)


def test_a_second_accepted_class_is_right_but_not_the_best(label: Expected) -> None:
    """Otherwise top-1 accuracy would equal acceptance."""
    found = mark(verdict("hang.rank_divergence"), label)
    assert found.right
    assert not found.first


def test_either_action_of_an_alternative_is_enough(label: Expected) -> None:
    """Otherwise `a|b` would ask for both."""
    assert mark(verdict(actions=("capture_more",)), label).right


def test_empty_culprits_of_a_public_case_forbid_naming_one(tmp_path: Path) -> None:
    """Otherwise accusing a bystander would cost nothing."""
    label = labelled(tmp_path, culprit_ranks=[], culprit_hosts=[])
    assert mark(verdict(ranks=()), label).right
    assert mark(verdict(ranks=(1,)), label).ranks is False
    assert mark(verdict(ranks=(), hosts=("a",)), label).hosts is False


def test_empty_culprits_of_a_recording_are_not_scored(tmp_path: Path) -> None:
    """Otherwise recordings without a scored rank would count as wrong accusations."""
    path = tmp_path / "expected.yaml"
    raw = {key: value for key, value in LABEL.items() if key != "culprit_hosts"}
    path.write_text(yaml.safe_dump({**raw, "culprit_ranks": []}))
    assert mark(verdict(ranks=(1,)), read_expected(path)).culprits is None


def test_confidence_above_the_limit_is_wrong_unless_unknown(tmp_path: Path) -> None:
    """Otherwise an ambiguous case could be decided with certainty."""
    label = labelled(tmp_path, max_confidence="low", classes=["unknown", "hang.python"])
    assert mark(verdict(confidence="medium"), label).misses == ("confidence",)
    assert mark(verdict(confidence="low"), label).right
    assert mark(verdict("unknown", confidence="high"), label).right


def test_stalled_may_be_unscored_or_one_of_several(tmp_path: Path) -> None:
    """Otherwise `null` would mean "must not know"."""
    anything = labelled(tmp_path, stalled=None)
    assert all(mark(verdict(stalled=value), anything).stalled for value in (True, False, None))
    calm = labelled(tmp_path, stalled=[False, None])
    assert not mark(verdict(stalled=True), calm).stalled


@pytest.mark.parametrize(
    "broken", ["classes: []\nstalled: true", "stalled: true", "- 1", "{", "classes: [a]\nstalled: x"]
)
def test_a_label_that_cannot_be_read_is_an_error(tmp_path: Path, broken: str) -> None:
    """Otherwise a case with a broken label would silently drop out of the count."""
    path = tmp_path / "expected.yaml"
    path.write_text(broken)
    with pytest.raises(LabelError):
        read_expected(path)


def make_case(root: Path, name: str) -> Path:
    """A labelled case with one file of evidence."""
    (root / name / "evidence").mkdir(parents=True)
    (root / name / "evidence" / "a.log").write_text("line\n")
    (root / name / "expected.yaml").write_text(yaml.safe_dump(LABEL))
    return root / name


def test_cases_are_found_in_folders_and_in_packed_corpora(tmp_path: Path) -> None:
    """Otherwise part of a corpus would not be scored."""
    make_case(tmp_path / "loose", "one")
    make_case(tmp_path / "source", "two")
    pack(tmp_path / "source", tmp_path / "loose" / "more.tar.zst")
    with opened((tmp_path / "loose",)) as cases:
        assert sorted(case.name for case in cases) == ["one", "two"]
        assert all((case.evidence / "a.log").is_file() for case in cases)


def test_the_analyser_sees_the_evidence_but_not_the_name(tmp_path: Path) -> None:
    """Otherwise a rule could read the answer from the folder's name."""
    make_case(tmp_path, "hang-of-rank-2")
    (case,) = found_in(tmp_path)
    with neutral(case.evidence) as evidence:
        assert (evidence / "a.log").read_text() == "line\n"
        assert not (evidence.parent / "expected.yaml").exists()
        assert "rank" not in str(evidence)


def scored(root: Path, *verdicts: Verdict) -> str:
    """All that the scorer prints on cases with these verdicts."""
    results = []
    for number, said in enumerate(verdicts):
        make_case(root, f"c{number}")
        (case,) = found_in(root / f"c{number}")
        results.append(score_case(case, lambda _, said=said: Measured(verdict=said, seconds=0.5, peak_mib=64.0)))  # type: ignore[misc]
    summary = summarise(results)
    return "\n".join([*map(line, results), *confusion_lines(summary), *totals(summary)])


def test_the_summary_counts_what_it_says(tmp_path: Path) -> None:
    """Otherwise the published accuracy would not be the measured one."""
    text = scored(tmp_path, verdict(), verdict("unknown", ranks=(), actions=("drain_node",)))
    assert "right in everything   1 of 2 (50.0 %)" in text
    assert "culprits              1 of 2 (50.0 %)" in text
    assert "forbidden actions     1" in text
    assert "unknown               1 of 2 (50.0 %)" in text
    assert "hang.python              right    1 of 2    unknown 1" in text
    assert "missed: class, ranks, actions, forbidden:drain_node" in text


def test_an_analyser_that_raises_is_wrong_and_does_not_end_the_run(tmp_path: Path) -> None:
    """Otherwise one hostile folder would hide the accuracy of all others."""

    def broken(evidence: Path) -> Measured:
        raise KeyError(evidence.name)

    make_case(tmp_path, "one")
    (case,) = found_in(tmp_path)
    result = score_case(case, broken)
    assert not result.mark.right
    assert "KeyError" in line(result)


def test_packing_is_reproducible_and_unpacking_gives_the_files_back(tmp_path: Path) -> None:
    """Otherwise each packing would be a new binary in the history."""
    make_case(tmp_path / "source", "one")
    pack(tmp_path / "source", tmp_path / "a.tar.zst")
    pack(tmp_path / "source", tmp_path / "b.tar.zst")
    assert (tmp_path / "a.tar.zst").read_bytes() == (tmp_path / "b.tar.zst").read_bytes()
    assert (unpack(tmp_path / "a.tar.zst", tmp_path / "out") / "one/evidence/a.log").read_text() == "line\n"


def hostile(entry: tarfile.TarInfo, path: Path) -> Path:
    """An archive with one entry."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        tar.addfile(entry)
    path.write_bytes(zstandard.ZstdCompressor().compress(buffer.getvalue()))
    return path


def test_an_archive_cannot_write_outside_or_bring_links(tmp_path: Path) -> None:
    """Otherwise scoring a foreign corpus could overwrite files."""
    outside, link = tarfile.TarInfo("../outside"), tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    for entry in (outside, link):
        with pytest.raises(CorpusError):
            unpack(hostile(entry, tmp_path / "bad.tar.zst"), tmp_path / "out")
    assert not (tmp_path / "outside").exists()


def test_a_file_that_is_no_archive_is_an_error(tmp_path: Path) -> None:
    """Otherwise a damaged corpus would count as one without cases."""
    path = tmp_path / "bad.tar.zst"
    path.write_bytes(b"not zstd")
    with pytest.raises(CorpusError):
        unpack(path, tmp_path / "out")


def test_files_that_differ_in_numbers_only_are_one_source() -> None:
    """Otherwise taking one source away would leave its twin of another rank."""
    assert source_of(Path("node1/nccl.node1.5200")) == source_of(Path("node2/nccl.node2.5207"))
    assert source_of(Path("stacks/worker0.txt")) != source_of(Path("worker0.txt"))


@pytest.mark.parametrize(
    ("without", "outcome"),
    [
        (verdict(), "right"),
        (verdict(ranks=(), confidence="medium"), "softened"),
        (verdict("unknown", ranks=(), actions=("capture_more",), confidence="low"), "softened"),
        (verdict("hang.network", ranks=()), "wrong"),
        (verdict("unknown", ranks=(3,), confidence="low"), "wrong"),
        (verdict("unknown", ranks=(), actions=("drain_node",), confidence="low"), "wrong"),
    ],
)
def test_less_evidence_may_soften_a_verdict_but_not_turn_it(label: Expected, without: Verdict, outcome: str) -> None:
    """Otherwise a missing file could accuse somebody else unnoticed."""
    assert judge_outcome(without, verdict(), label) == outcome


def test_a_named_tuple_of_a_case_carries_its_label(tmp_path: Path) -> None:
    """Otherwise results could be matched with another case's label."""
    make_case(tmp_path, "one")
    (case,) = found_in(tmp_path)
    assert isinstance(case, Case)
    assert case.expected.ranks == (2,)
