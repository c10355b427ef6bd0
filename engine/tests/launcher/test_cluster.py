"""The cluster file and the plan: what operators write, and what they are shown before a start."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_cluster import SmallCluster, small_cluster

from sentinel_engine.cli import main
from sentinel_engine.launcher import cluster as cluster_file
from sentinel_engine.launcher.errors import BadCluster
from sentinel_engine.launcher.plan import Kept, make, new_incarnation, redact

EXAMPLE = Path(__file__).parents[3] / "docs" / "cluster.toml"


@pytest.fixture
def small() -> Iterator[SmallCluster]:
    """A cluster of two nodes on this host, in a folder with a short path."""
    with tempfile.TemporaryDirectory(prefix="se-") as folder:
        yield small_cluster(Path(folder))


def test_the_example_is_a_whole_cluster() -> None:
    """False: what users copy is refused, or starts something else than it says."""
    cluster = cluster_file.load(EXAMPLE)
    one, two = make(cluster)
    assert (one.ranks, two.ranks, cluster.world) == ((0, 1), (2, 3), 4)
    assert two.command == (
        "/opt/sentinel-engine/bin/python", "-m", "sentinel_engine.worker", "--config",
        two.config_path, "--rank", "2,3", "--world", "4", "--master", "10.77.0.1:29500",
    )  # fmt: skip
    assert two.environment["NCCL_IB_HCA"] == "mlx5_0"
    assert two.environment["NCCL_IB_GID_INDEX"] == "3"
    settings = json.loads(two.config)
    assert (settings["interface"], settings["rows_mode"], settings["world"]) == (
        "enp65s0np0", "ram", 4)  # fmt: skip


@pytest.mark.parametrize(("change", "named"), [
    ({"nmae": "x"}, "nmae"),
    ({"name": "Bad Name"}, "Bad Name"),
    ({"memory_floor_bytes": "8 GB"}, "memory_floor_bytes"),
    ({"mode": "fast"}, "rows_mode=fast"),
])  # fmt: skip
def test_a_wrong_file_is_refused_by_name(
    small: SmallCluster, change: dict[str, object], named: str
) -> None:
    """False: a misspelt setting is silently a default on all nodes."""
    small.top |= change
    with pytest.raises(BadCluster, match=named):
        cluster_file.load(Path(small.write()))


@pytest.mark.parametrize(("change", "named"), [
    ({"ranks": 0}, "ranks"),
    ({"rows": "rows"}, "absolute"),
    ({"name": "one"}, "same name"),
    ({"netns": "a", "ssh": "b"}, "not both"),
    ({"engine": {"world": 8}}, "world"),
    ({"state": "/var/lib/" + "a-long-name/" * 8}, "too long for sockets"),
    ({"engine": {"prot": 8}}, "prot"),
])  # fmt: skip
def test_a_wrong_node_is_refused_by_name(
    small: SmallCluster, change: dict[str, object], named: str
) -> None:
    """False: two nodes overwrite each other's state, or ranks of two worlds meet."""
    small.nodes[1] |= change
    with pytest.raises(BadCluster, match=named):
        cluster_file.load(Path(small.write()))


def test_plan_prints_and_touches_nothing(
    small: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """False: looking at a plan changes a machine."""
    command = small.command("plan")
    before = sorted(small.folder.rglob("*"))
    assert main(command) == 0
    assert sorted(small.folder.rglob("*")) == before
    shown = json.loads(capsys.readouterr().out)
    assert shown["difference"] is None
    assert [node["ranks"] for node in shown["nodes"]] == [[0], [1]]


def test_a_mode_for_all_replaces_the_files(
    small: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """False: an engine that is restarted in RAM mode keeps one node on NVMe."""
    small.nodes[1]["mode"] = "legacy"
    main(small.command("plan"))
    modes = [node["settings"]["rows_mode"] for node in json.loads(capsys.readouterr().out)["nodes"]]
    assert modes == ["nvme", "legacy"]
    main(small.command("plan", "--mode", "ram"))
    modes = [node["settings"]["rows_mode"] for node in json.loads(capsys.readouterr().out)["nodes"]]
    assert modes == ["ram", "ram"]


def test_the_difference_names_what_changed(
    small: SmallCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """False: an operator cannot see why today's launch is not last week's."""
    cluster = cluster_file.load(Path(small.write()))
    kept = Kept(small.folder / "plans", cluster.name)
    kept.keep(new_incarnation(cluster.name), make(cluster))
    main(small.command("plan"))
    assert json.loads(capsys.readouterr().out)["difference"] == []
    small.nodes[1]["mode"] = "ram"
    main(small.command("plan"))
    changed = [line for line in json.loads(capsys.readouterr().out)["difference"]
               if line[0] in "+-" and line[:3] not in ("+++", "---")]  # fmt: skip
    assert any('"rows_mode": "ram"' in line for line in changed)
    assert all("rows_mode" in line or "config-" in line for line in changed)


def test_plans_of_earlier_launches_stay(small: SmallCluster) -> None:
    """False: the record of a launch is replaced by the next one."""
    cluster = cluster_file.load(Path(small.write()))
    kept = Kept(small.folder / "plans", cluster.name)
    for incarnation in ("a-20260101T000000Z-000000", "a-20260102T000000Z-000000"):
        kept.keep(incarnation, make(cluster))
    assert len(list((small.folder / "plans").rglob("*.plan.json"))) == 2
    last = kept.last()
    assert last is not None and last[0] == "a-20260102T000000Z-000000"
    with pytest.raises(FileExistsError):
        kept.keep("a-20260102T000000Z-000000", make(cluster))


def test_secrets_are_neither_shown_nor_kept(
    small: SmallCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """False: a plan pasted into a ticket gives the engine away."""
    secret = small.folder / "token"
    secret.write_text("swordfish-1\n")
    monkeypatch.setenv("HF_KEY", "swordfish-2")
    small.top |= {"admin_token_file": str(secret), "pass_env": ["HF_KEY"]}
    small.env |= {"UPSTREAM_PASSWORD": "swordfish-3"}
    main(small.command("plan"))
    main(small.command("plan")[1:])
    shown = capsys.readouterr()
    assert "swordfish" not in shown.out + shown.err
    assert "admin_token" in shown.out and "HF_KEY" in shown.out
    one, _ = make(cluster_file.load(Path(small.write())))
    assert "swordfish-1" in one.config and one.passed == {"HF_KEY": "swordfish-2"}
    assert "swordfish" not in " ".join(one.command)


def test_redaction_still_tells_apart() -> None:
    """False: a changed token cannot be seen in the difference, or token counts are hidden."""
    assert redact({"admin_token": "a"}) != redact({"admin_token": "b"})
    assert redact({"draft_tokens": 3, "admin_token": ""}) == {"draft_tokens": 3, "admin_token": ""}


def test_a_variable_that_is_not_there_is_named(small: SmallCluster) -> None:
    """False: ranks start without the credential that their node needs."""
    small.top |= {"pass_env": ["NOT_SET_ANYWHERE"]}
    with pytest.raises(BadCluster, match="NOT_SET_ANYWHERE"):
        make(cluster_file.load(Path(small.write())))
