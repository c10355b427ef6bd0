"""A redacted bundle is evidence: judged again it says what the raw folder said."""

from pathlib import Path

import pytest

from sentinel.evidence.load import load
from sentinel.record.bundle import Order, create
from sentinel.record.pseudonyms import Pseudonyms
from sentinel.testing.corpus import unpack
from tests.record.bundle_making import KEY, judged

CORPUS = Path(__file__).parents[1] / "corpus"
SAMPLE_EVERY = {"recordings": 4, "casebook": 7, "healthy": 6}


@pytest.fixture(scope="module", params=sorted(SAMPLE_EVERY))
def cases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A sample of the evidence folders of one corpus."""
    root = unpack(CORPUS / f"{request.param}.tar.zst", tmp_path_factory.mktemp("corpus"))
    return sorted(path.parent / "evidence" for path in root.rglob("expected.yaml"))[:: SAMPLE_EVERY[request.param]]


@pytest.mark.timeout(600)
def test_redaction_does_not_change_the_verdict(cases: list[Path], tmp_path: Path) -> None:
    """False: whoever receives the bundle is told another cause, another rank or another certainty."""
    names = Pseudonyms(KEY)
    for evidence in cases:
        loaded = load(evidence)
        raw = judged(loaded)
        target = tmp_path / f"{evidence.parent.name}.tar.zst"
        create(evidence, target, Order(key=KEY), raw, loaded)
        shown = judged(load(target))

        assert (shown.kind, shown.confidence, shown.stalled) == (raw.kind, raw.confidence, raw.stalled), evidence
        assert shown.culprits.ranks == raw.culprits.ranks, evidence
        assert shown.culprits.pids == raw.culprits.pids, evidence
        assert shown.culprits.requests == raw.culprits.requests, evidence
        assert set(shown.culprits.hosts) == {names.host(host) for host in raw.culprits.hosts}, evidence
