"""Evidence of several hosts is judged together, by the same judge as offline, and nobody is accused unseen."""

from random import Random

import pytest

from sentinel.core.facts import NAMES
from sentinel.core.judge import judge
from sentinel.evidence.load import load
from sentinel.model.cluster import EvidenceRead, ReadEvidence
from sentinel.model.observation import Observation
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict
from sentinel.rulebook import load_rules
from sentinel.testing.generator import write_case
from sentinel.testing.generator.scenarios import ALL
from tests.coordination.cluster_world import World

WANTED = 2
WORLD_MAX = 16
SEED = 5


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, tuple[Observation, ...]]]:
    """Generated evidence of small stalled engines on two hosts, by host."""
    found: list[dict[str, tuple[Observation, ...]]] = []
    for number, scenario in enumerate(ALL):
        story = scenario(Random(f"{SEED}/{number}"))
        if len(story.fleet.hosts) != 2 or story.fleet.world > WORLD_MAX or not story.label.ranks:
            continue
        folder = write_case(tmp_path_factory.mktemp("cases"), number=number, seed=SEED)
        by_host: dict[str, list[Observation]] = {}
        for seen in load(folder / "evidence").observations:
            if seen.host is not None:
                by_host.setdefault(seen.host, []).append(seen)
        if len(by_host) == 2:
            found.append({host: tuple(seen) for host, seen in by_host.items()})
        if len(found) == WANTED:
            break
    return found


def judged(by_host: dict[str, tuple[Observation, ...]], hosts: tuple[str, ...]) -> Verdict:
    """What the coordinator makes of it."""
    world = World(hosts=hosts)
    for host in hosts:
        world.change(host, phase="judged", moved_s=world.now_s - 100.0)
    world.tick(3)
    for command in world.commands("capture"):
        world.ack(command, evidence="digest" if command.host in by_host else "")
    world.tick()
    (asked,) = [effect for effect in world.effects if isinstance(effect, ReadEvidence)]
    assert set(asked.digests) == set(by_host)
    at = Stamp(mono_ns=round(world.now_s * 1e9), wall_ns=0, boot_id="b")
    world.core.step(EvidenceRead(at=at, group="chat", incident=asked.incident, by_host=by_host))  # type: ignore[arg-type]
    verdict = world.core.group("chat").verdict
    assert verdict is not None
    return verdict


def test_the_group_is_judged_as_the_same_evidence_would_be_offline(
    cases: list[dict[str, tuple[Observation, ...]]],
) -> None:
    """False: collectives are matched within a host only, and the culprit on another host is never named."""
    rules = load_rules(NAMES)
    assert len(cases) == WANTED
    for by_host in cases:
        everything = [seen for host in sorted(by_host) for seen in by_host[host]]
        now_s = max(seen.at_s for seen in everything if seen.at_s is not None)
        offline = judge(everything, rules, now_s=now_s).verdict
        together = judged(by_host, tuple(sorted(by_host)))

        assert (together.kind, together.culprits, together.victims) == (offline.kind, offline.culprits, offline.victims)
        assert together.culprits.hosts


def test_a_host_without_evidence_is_not_accused(cases: list[dict[str, tuple[Observation, ...]]]) -> None:
    """False: the host whose agent could not answer is drained, because it said nothing."""
    for by_host in cases:
        hosts = tuple(sorted(by_host))
        for missing in hosts:
            rest = {host: seen for host, seen in by_host.items() if host != missing}
            verdict = judged(rest, hosts)

            assert f"evidence of {missing}" in verdict.missing
            assert missing not in verdict.culprits.hosts


def test_evidence_speaks_for_its_own_host_only(cases: list[dict[str, tuple[Observation, ...]]]) -> None:
    """False: one compromised agent frames another host."""
    by_host = cases[0]
    hosts = tuple(sorted(by_host))
    forged = {hosts[0]: tuple(seen for observations in by_host.values() for seen in observations)}

    assert set(judged(forged, hosts).culprits.hosts) <= {hosts[0]}
