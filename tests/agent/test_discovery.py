"""Every engine of the host is found, with its ranks, its log and its deadline, and is never confused with another."""

import os
import signal
from pathlib import Path

import pytest

from sentinel.agent.discovery import OLD_SHARE, YOUNG_SCANS, Discovery
from sentinel.agent.ring import Ring
from sentinel.agent.roster import engine_sources
from sentinel.agent.sources.engine_log import logs_of
from sentinel.config import Config
from tests.agent.engines import rehearsal
from tests.agent.proc_tree import ProcTree
from tests.agent.targets import eventually

LAUNCH = ("python3", "-m", "sglang.launch_server", "--tp-size", "2", "--watchdog-timeout", "120", "--port", "31000")


def sglang(tree: ProcTree, pid: int = 100, ticks: int = 1000, **options: str) -> None:
    """A launcher with two schedulers."""
    tree.start(pid, 1, *LAUNCH, ticks=ticks, **options)
    for rank in range(2):
        tree.start(pid + 1 + rank, pid, f"sglang::scheduler_TP{rank}", ticks=ticks + 1, **options)


def test_a_running_engine_is_found_with_its_ranks_log_and_deadline(tmp_path: Path) -> None:
    """If false, zero configuration would mean zero detection."""
    with rehearsal(tmp_path, 2, "--watchdog-timeout", "77") as engine:
        found = engine.engine()

    assert [process.rank for process in found.ranks] == [0, 1]
    assert found.processes[0].log == str(engine.log)
    assert found.deadline is not None and found.deadline.earliest_s == 77.0
    assert all("nccl.%h.%p" in str(process.nccl_debug_file) for process in found.ranks)


def test_nodes_of_one_launch_that_share_a_box_are_one_engine(tmp_path: Path) -> None:
    """If false, an engine in two namespaces would be two halves, and neither would show which rank keeps the other."""
    tree = ProcTree(tmp_path)
    for pid, rank, launch in ((100, 1, "a"), (200, 0, "a"), (300, 0, "b")):
        words = f"python3 -m sentinel_engine.worker --rank {rank} --role launcher --port {30000 + pid}"
        tree.start(pid, 1, *words.split(), environ=f"SENTINEL_ENGINE_INCARNATION={launch}", log=f"/log/{pid}")
        tree.start(pid + 1, pid, *f"python3 -m sentinel_engine.worker --role rank --rank {rank}".split())
    first, second = Discovery(proc=tmp_path).scan()

    assert (first.root.pid, first.url) == (100, "http://127.0.0.1:30200")
    assert sorted((process.id.pid, process.rank) for process in first.ranks) == [(101, 1), (201, 0)]
    assert [root.pid for root in first.roots] == [100, 200]
    assert list(logs_of(first).values()) == [100, 200]
    assert (second.root.pid, len(second.ranks)) == (300, 1)


def test_a_launch_keeps_its_name_when_the_root_that_it_is_called_by_ends(tmp_path: Path) -> None:
    """If false, the death of one node would end the watch of the engine that hangs because of it, and begin another."""
    tree = ProcTree(tmp_path)
    start = "python3 -m sentinel_engine.worker --role launcher --rank {}"
    for pid, rank in ((100, 0), (200, 1)):
        tree.start(pid, 1, *start.format(rank).split(), environ="SENTINEL_ENGINE_INCARNATION=a", ticks=pid)
    discovery = Discovery(proc=tmp_path)
    (before,) = discovery.scan()
    tree.end(100)
    (after,) = discovery.scan()
    assert (before.root.pid, after.root.pid) == (100, 200) and after.key == before.key and after.called_pid == 100
    tree.end(200)
    tree.start(300, 1, *start.format(0).split(), environ="SENTINEL_ENGINE_INCARNATION=a", ticks=300)
    (again,) = discovery.scan()

    assert again.key != before.key, "nothing of it was left: whatever has its name now is another engine"


def test_a_rank_that_dies_is_missing_from_the_next_scan(tmp_path: Path) -> None:
    """If false, the death of a rank would be noticed only by the silence that follows."""
    with rehearsal(tmp_path) as engine:
        before = engine.engine()
        os.kill(before.ranks[1].id.pid, signal.SIGKILL)
        eventually(lambda: before.ranks[1] not in engine.engine().ranks)
        after = engine.engine()

    assert after.key == before.key


def test_a_service_that_writes_to_the_journal_is_followed_there(tmp_path: Path) -> None:
    """If false, an engine that systemd runs would have no log, and its silence would be seen by its counters alone."""
    tree = ProcTree(tmp_path)
    group, stream = "0::/system.slice/llm.service", "socket:[4711]"
    sglang(tree, environ="JOURNAL_STREAM=9:4711", cgroup=group, log=stream)
    sglang(tree, pid=200, environ="JOURNAL_STREAM=9:4712", cgroup=group, log=stream)
    here, elsewhere = Discovery(proc=tmp_path).scan()

    assert here.processes[0].log == "journal:_SYSTEMD_CGROUP=/system.slice/llm.service"
    assert elsewhere.processes[0].log is None


@pytest.mark.parametrize(
    "groups",
    ["0::/a.slice/b:c.service", "12:devices:/other\n3:name=systemd:/a.slice/b:c.service\n0::/"],
    ids=["unified", "named"],
)
def test_the_control_group_of_a_journal_is_read_as_the_helper_reads_it(tmp_path: Path, groups: str) -> None:
    """If false, an engine on a host with older control groups has no log, or one under a name that nobody has."""
    sglang(ProcTree(tmp_path), environ="JOURNAL_STREAM=9:4711", cgroup=groups, log="socket:[4711]")

    (engine,) = Discovery(proc=tmp_path).scan()

    assert engine.processes[0].log == "journal:_SYSTEMD_CGROUP=/a.slice/b:c.service"


def test_an_engine_that_ends_is_gone(tmp_path: Path) -> None:
    """If false, the agent would suspect engines that were shut down."""
    tree = ProcTree(tmp_path)
    sglang(tree)
    discovery = Discovery(proc=tmp_path)
    assert len(discovery.scan()) == 1

    for pid in (100, 101, 102):
        tree.end(pid)

    assert discovery.scan() == ()


def test_a_reused_pid_is_another_engine(tmp_path: Path) -> None:
    """If false, a restart within one scan interval would inherit the silence of the engine before it."""
    tree = ProcTree(tmp_path)
    sglang(tree, ticks=1000)
    discovery = Discovery(proc=tmp_path)
    (before,) = discovery.scan()
    for pid in (100, 101, 102):
        tree.end(pid)
    sglang(tree, ticks=5000)

    (after,) = discovery.scan()

    assert after.root.pid == before.root.pid and after.key != before.key
    assert {process.id for process in after.processes}.isdisjoint(process.id for process in before.processes)


def test_a_reused_pid_of_a_stranger_is_no_engine(tmp_path: Path) -> None:
    """If false, an editor that got a dead engine's pid would be watched as that engine."""
    tree = ProcTree(tmp_path)
    sglang(tree)
    discovery = Discovery(proc=tmp_path)
    discovery.scan()
    for pid in (100, 101, 102):
        tree.end(pid)
    tree.start(100, 1, "vi", "notes", ticks=9000)

    assert discovery.scan() == ()


def test_a_pid_that_an_unknown_process_left_to_an_engine_is_looked_at(tmp_path: Path) -> None:
    """If false, an engine that starts on a pid which the agent has seen before would never be found."""
    tree = ProcTree(tmp_path)
    tree.start(100, 1, "bash", ticks=10)
    discovery = Discovery(proc=tmp_path)
    assert discovery.scan() == ()
    tree.end(100)
    sglang(tree, ticks=2000)

    assert len(discovery.scan()) == 1


def test_a_shell_that_becomes_an_engine_is_found(tmp_path: Path) -> None:
    """If false, `exec python -m sglang.launch_server` in a start script would hide the engine: same pid, same start."""
    tree = ProcTree(tmp_path)
    tree.start(100, 1, "bash", "start.sh", ticks=10)
    discovery = Discovery(proc=tmp_path)
    assert discovery.scan() == ()
    sglang(tree, ticks=10)

    assert len(discovery.scan()) == 1


def test_an_old_shell_that_becomes_an_engine_is_found_after_some_scans(tmp_path: Path) -> None:
    """If false, an engine started by `exec` in a shell that was open for long would never be watched."""
    tree = ProcTree(tmp_path)
    tree.start(100, 1, "bash", ticks=10)
    discovery = Discovery(proc=tmp_path)
    for _ in range(YOUNG_SCANS + 1):
        discovery.scan()
    sglang(tree, ticks=10)

    assert any(discovery.scan() for _ in range(OLD_SHARE))


def test_several_engines_of_one_host_are_kept_apart(tmp_path: Path) -> None:
    """If false, the silence of one engine would be covered by the progress of another."""
    tree = ProcTree(tmp_path)
    sglang(tree, 100)
    sglang(tree, 200)

    first, second = Discovery(proc=tmp_path).scan()

    assert {process.id.pid for process in first.processes} == {100, 101, 102}
    assert {process.id.pid for process in second.processes} == {200, 201, 202}


def test_an_engine_in_a_container_is_found_with_its_id_and_its_log_below_its_root(tmp_path: Path) -> None:
    """If false, only engines outside containers could be watched, and most run inside."""
    tree, container = ProcTree(tmp_path), "c0ffee" + "0" * 58
    sglang(tree, cgroup=f"0::/system.slice/docker-{container}.scope", log="/logs/inside-only.log")

    (engine,) = Discovery(proc=tmp_path).scan()

    assert {process.container for process in engine.processes} == {container}
    assert engine.processes[0].log == f"{tmp_path}/100/root/logs/inside-only.log"


def test_an_engine_of_another_user_is_found_without_its_environment(tmp_path: Path) -> None:
    """If false, an agent without privileges would see nothing instead of less."""
    tree = ProcTree(tmp_path)
    sglang(tree)
    for pid in (100, 101, 102):
        (tmp_path / str(pid) / "environ").unlink()

    (engine,) = Discovery(proc=tmp_path).scan()

    assert [process.rank for process in engine.ranks] == [0, 1]


def test_each_log_of_an_engine_keeps_its_source_while_others_come_and_go(tmp_path: Path) -> None:
    """If false, a log that is found late takes the name of another: one is read twice and one is never read."""
    tree = ProcTree(tmp_path)
    for pid in (100, 200):
        words = f"python3 -m sentinel_engine.worker --role launcher --rank {pid}".split()
        tree.start(pid, 1, *words, environ="SENTINEL_ENGINE_INCARNATION=a", ticks=pid, log=f"/log/{pid}")
    (tmp_path / "100" / "fd" / "2").rename(tmp_path / "hidden")
    discovery, config, ring = Discovery(proc=tmp_path), Config(), Ring(tmp_path / "ring")

    def logs(followed: frozenset[str] = frozenset()) -> list[str]:
        (engine,) = discovery.scan()
        built = engine_sources(config, engine, ring, lambda _s: False, followed)
        return [name for name, _ in built if name.startswith("log:")]

    assert logs() == ["log:200:packaged:100:100"]
    (tmp_path / "hidden").rename(tmp_path / "100" / "fd" / "2")
    assert logs() == ["log:packaged:100:100", "log:200:packaged:100:100"]
    tree.end(100)
    assert logs() == ["log:200:packaged:100:100"]
    assert logs(frozenset({f"{tmp_path}/200/root/log/200"})) == []
