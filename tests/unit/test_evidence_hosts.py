"""Evidence is assigned to the host it speaks for, and to none when nothing tells."""

from collections import Counter

import pytest

from sentinel.collector import Line
from sentinel.collectors import ALL
from sentinel.evidence.hosts import LOG_SOURCES, MACHINE_SOURCES, Clue, Hosts, hosts_in, looks_like_host

SGLANG = "sglang_log"


def clue(name: str, *hosts: str, machine: bool = False, log: str | None = None) -> Clue:
    return Clue(name, Counter(hosts), machine, frozenset({log} if log else ()))


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("gpu-a17:4411:4490 [3] NCCL INFO comm 0x55 rank 3 nranks 8 cudaDev 3", "gpu-a17"),
        ("Oct 07 02:08:27 h100-2 kernel: NVRM: Xid (PCI:0000:b1:00): 63", "h100-2"),
        ("2026-10-07T02:08:27+0200 h100-2 kernel: x", "h100-2"),
        ("Linux h100-2.example.org 6.8.0-85-generic #85 SMP", "h100-2"),
        ("root@h100-2:~# dmesg", "h100-2"),
        ("HOSTNAME=h100-2", "h100-2"),
        ("[2026-10-16 16:40:00 TP0] Decode batch, #running-req: 1", None),
        ("INFO 11-29 10:00:10 [loggers.py:87] Engine 000: Running: 3 reqs", None),
    ],
)
def test_hosts_are_read_from_content(text: str, host: str | None) -> None:
    """Else two nodes' evidence would be mixed, or an engine's words taken for a host name."""
    assert set(hosts_in([Line(1, text)])) == ({host} if host else set())


def test_a_folder_belongs_to_the_one_host_that_its_documents_name() -> None:
    """Else stacks and GPU tables, which name no host, would be lost for the culprit's host."""
    hosts = Hosts([clue("a/nccl.log", "gpu1"), clue("a/dump/stack.txt"), clue("b/nccl.log", "gpu2"), clue("b/gpu.csv")])
    assert [hosts.of(name) for name in ("a/dump/stack.txt", "b/gpu.csv")] == ["gpu1", "gpu2"]


def test_folders_named_like_hosts_are_hosts_and_kinds_of_evidence_are_not() -> None:
    """Else `rank0/` or `start2/` would be named as a guilty host."""
    assert all(map(looks_like_host, ("node1", "ip-10-0-0-7", "10.0.0.7", "dgx-h100-03", "n2")))
    assert not any(
        map(looks_like_host, ("rank0", "stacks", "start2", "TP3", "metrics", "nccl", "sample_2", "tp-1", "20261129"))
    )
    hosts = Hosts([clue("node1/rank0/stack.txt"), clue("node2/rank8/stack.txt")])
    assert hosts.of("node2/rank8/stack.txt") == "node2"
    assert Hosts([clue("rank0/stack.txt"), clue("rank1/stack.txt")]).of("rank0/stack.txt") is None


def test_sibling_folders_with_tables_of_whole_machines_are_hosts() -> None:
    """Else hosts with unnumbered names would be one host whose GPUs contradict each other."""
    hosts = Hosts([clue("left/gpu.csv", machine=True), clue("right/gpu.csv", machine=True), clue("left/engine.log")])
    assert (hosts.of("left/engine.log"), hosts.of("right/gpu.csv")) == ("left", "right")


def test_with_one_host_everything_belongs_to_it() -> None:
    """Else a single-node folder would have half of its evidence on no host."""
    hosts = Hosts([clue("nccl.log", "gpu1"), clue("gpu.csv"), clue("engine.log")])
    assert hosts.of("gpu.csv") == "gpu1" and hosts.known == ["gpu1"]


def test_with_two_hosts_an_unplaced_document_belongs_to_none() -> None:
    """Else the machine that happens to come first would be blamed."""
    hosts = Hosts([clue("a/nccl.log", "gpu1"), clue("b/nccl.log", "gpu2"), clue("gpu.csv")])
    assert hosts.of("gpu.csv") is None


def test_a_document_that_names_several_hosts_has_none_and_one_stray_line_does_not_count() -> None:
    """Else all lines of a merged log would be put on one host, or one quoted line would undo a host."""
    several = Clue("all.log", Counter({"gpu1": 50, "gpu2": 40}))
    stray = Clue("x/one.log", Counter({"gpu1": 500, "gpu9": 1}))
    hosts = Hosts([several, stray])
    assert hosts.of("all.log") is None and hosts.of("x/one.log") == "gpu1"


def test_file_names_place_documents_only_when_nothing_else_does() -> None:
    """Else flat evidence of two nodes would be one machine; and `m1.prom` must not become a host."""
    logs = [clue("n1.log", log=SGLANG), clue("n2.log", log=SGLANG)]
    flat = [*logs, clue("n1.gpu.csv"), clue("n2.gpu.csv"), clue("m1.prom")]
    hosts = Hosts(flat)
    assert [hosts.of(one.name) for one in flat] == ["n1", "n2", "n1", "n2", None]
    known = Hosts([clue("x.log", "gpu1"), clue("y.log", "gpu2"), clue("smi-gpu2.csv")])
    assert known.of("smi-gpu2.csv") == "gpu2"


def test_an_archive_counts_as_a_folder() -> None:
    """Else bundles packed per node would lose their hosts."""
    hosts = Hosts([clue("node1.tar.gz!gpu.csv"), clue("node2.tar.gz!gpu.csv")])
    assert hosts.of("node2.tar.gz!gpu.csv") == "node2"


def test_a_containers_random_name_stands_for_the_only_machine() -> None:
    """Else NCCL lines from inside a container and the kernel log around it would be two hosts."""
    hosts = Hosts([clue("nccl.log", "3f2a9c0d1e4b"), clue("kern.log", "gpu1")])
    assert hosts.of("nccl.log") == "gpu1" and hosts.known == ["gpu1"]


def test_sources_that_hint_at_hosts_are_names_of_parsers() -> None:
    """Else a renamed parser would silently stop counting as a sign of a host of its own."""
    assert {parser.name for parser in ALL} >= MACHINE_SOURCES | LOG_SOURCES


def test_numbered_files_that_name_the_same_host_are_no_hosts() -> None:
    """Else every file of `f0`, `f1`, ... would become a host of its own and no stack would find its rank."""
    traced = [clue("f3", "gpu1"), clue("f4", "gpu1")]
    hosts = Hosts([clue("f1", log=SGLANG), clue("f2", log=SGLANG), *traced, clue("f5")])
    assert hosts.known == ["gpu1"] and hosts.of("f1") == hosts.of("f5") == "gpu1"
    mixed = Hosts([clue("f1", log="kernel_log"), clue("f2", log=SGLANG), clue("f3")])
    assert mixed.known == []
    numbered = Hosts([clue("n1.log", log=SGLANG), clue("n2.log", log=SGLANG), clue("n1.gpu.csv", machine=True)])
    assert numbered.known == ["n1", "n2"]
