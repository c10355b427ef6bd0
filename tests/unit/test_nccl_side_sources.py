"""RAS answers, flight-recorder dumps, RDMA counters, GID tables and environments as their programs print them."""

import json
import pickle
from collections.abc import Iterator

import pytest

from sentinel.collector import Context, DocumentParser, Line, Sample
from sentinel.collectors import environment, flight_recorder, nccl_ras, rdma_counters, show_gids
from sentinel.collectors.flight_recorder import Refused, load_plain_pickle
from sentinel.model.observation import (
    DeviceCounters,
    Environment,
    FlightTrace,
    NicGids,
    Observation,
    Ras,
    Unavailable,
)  # fmt: skip


class Document:
    """A small document in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def chunks(self) -> Iterator[bytes]:
        """The bytes in two pieces."""
        half = len(self._data) // 2
        yield self._data[:half]
        yield self._data[half:]

    def lines(self) -> Iterator[Line]:
        """The lines of the text."""
        for number, line in enumerate(self.text().split("\n"), 1):
            yield Line(number=number, text=line)

    def text(self, limit: int = 8 << 20) -> str:
        """The text."""
        return self._data.decode("utf-8", "replace")[:limit]


def parse(parser: DocumentParser, data: str | bytes, name: str = "file.txt") -> list[Observation]:
    """What a parser makes of a document that it recognises."""
    blob = Document(data.encode() if isinstance(data, str) else data)
    assert parser.recognise(Sample(blob.text().replace("\0", "")))
    return list(parser.parse(blob, Context(name=name, year=2026)))


RAS_HEAD = """SERVER PROTOCOL 2
OK
NCCL version 2.28.9 compiled with CUDA 13.0
CUDA runtime version 13000, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      2          8            1         16       16

Communicators... (0.00s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
"""


def answer(body: str) -> Ras:
    """The one RAS answer in a text."""
    (seen,) = parse(nccl_ras.PARSER, RAS_HEAD + body, "ras.txt")
    assert isinstance(seen, Ras)
    return seen


def test_a_mismatch_names_the_outlier_and_what_the_others_launched() -> None:
    """False in production: the rank that RAS itself singles out would be lost."""
    seen = answer(
        "    0         1         2         8        16        16   RUNNING  MISMATCH\n\nErrors\n======\n\n"
        "Warnings\n========\n\n#0-0 (7be41f0a22d9c310) MISMATCH\n"
        "  Communicator ranks have different AllGather operation counts\n"
        "  15 ranks have launched up to operation 40131\n"
        "  Rank 9 has launched up to operation 40125 -- GPU 1 managed by process 305 on node 10.0.0.2\n"
        "  Communicator ranks have different AllReduce operation counts\n"
        "  15 ranks have launched up to operation 7\n"
        "  Rank 9 has not launched any operations -- GPU 1 managed by process 305 on node 10.0.0.2\n"
    )
    (comm,) = seen.comms
    assert (comm.comm_id, comm.size, comm.errors) == ("0x7be41f0a22d9c310", 16, ("MISMATCH",))
    assert comm.mismatch == {"AllGather": {"others": 40131, "9": 40125}, "AllReduce": {"others": 7, "9": 0}}
    assert comm.ranks[0].pid == 305
    assert comm.ranks[0].counts == {"AllGather": 40125, "AllReduce": 0}
    assert not seen.garbled


def test_ranks_that_are_stray_memory_are_dropped_and_the_answer_is_marked() -> None:
    """False in production: rank 1869760266 would be among the culprits."""
    seen = answer(
        "    0         1         1         1         2         1   RUNNING  INCOMPLETE\n"
        "    1         1         0         0         0         0      INIT  INCOMPLETE\n\nErrors\n======\n\n"
        "#0-0 (3de82bc2ec87ffa4) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        "  Rank 1 -- GPU 1 managed by process 1999 on node 10.0.0.11\n\n"
        "#1-0 (79a3000200000001) INCOMPLETE\n  Missing communicator data from 257 ranks\n"
        "  Rank -1822946888 -- [process information not found]\n"
        "  Rank 1869760266 -- [process information not found]\n"
    )
    assert seen.garbled
    (comm,) = seen.comms
    assert comm.comm_id == "0x3de82bc2ec87ffa4"
    assert [(who.rank, who.pid) for who in comm.missing] == [(1, 1999)]


def test_a_dead_process_is_told_from_one_that_is_only_missing() -> None:
    """False in production: an unresponsive process would be reported as dead."""
    seen = answer(
        "    0         1         2         8        16        15   RUNNING  INCOMPLETE\n\nErrors\n======\n\n"
        "INCOMPLETE\n  Missing communicator data from 1 job process\n"
        "  Process 41 on node 10.0.0.1 managing GPU 0\n\n"
        "DEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
        "  Process 42 on node 10.0.0.2 managing GPU 3\n"
    )
    assert [who.pid for who in seen.dead] == [42]
    assert [who.pid for who in seen.comms[0].missing] == [41]


@pytest.mark.parametrize("text", ["TimeoutError('timed out')", "ConnectionRefusedError(111, 'Connection refused')"])
def test_no_answer_is_an_observation_when_it_is_clear_who_was_asked(text: str) -> None:
    """False in production: a process too frozen to answer would leave no trace."""
    (seen,) = parse(nccl_ras.PARSER, text, "ncclras.txt")
    assert isinstance(seen, Ras)
    assert seen.error == text
    assert parse(nccl_ras.PARSER, text, "curl.txt") == []


def test_other_tools_errors_are_not_taken_for_ras() -> None:
    """False in production: a failed stack dump would be claimed by the wrong reader."""
    assert not nccl_ras.PARSER.recognise(Sample("Error: Failed to find python version from target process\n"))
    assert not nccl_ras.PARSER.recognise(Sample(""))


def test_json_counts_that_differ_are_a_mismatch_and_a_cut_answer_is_an_error() -> None:
    """False in production: the newest and most exact form of the answer would be unread."""

    def rank(number: int, launched: int) -> dict[str, object]:
        return {
            "rank": number, "host": "10.0.0.1", "pid": 400 + number,
            "status": {"init_state": 0, "async_error": 0, "abort_flag": False},
            "collective_counts": {"AllReduce": launched, "Broadcast": 2},
        }  # fmt: skip

    value = {
        "nccl_version": "2.30.7", "timestamp": "2026-10-25 14:16:31", "communicators_count": 1,
        "communicators": [
            {
                "hash": "0x6b", "size": 4, "ranks": [rank(0, 9), rank(1, 9), rank(2, 8)],
                "missing_ranks": [{"rank": 3, "pid": 403, "status": {"unresponsive": True, "considered_dead": True}}],
            }
        ],
    }  # fmt: skip
    (seen,) = parse(nccl_ras.PARSER, json.dumps(value), "ras.json")
    assert isinstance(seen, Ras)
    (comm,) = seen.comms
    assert comm.mismatch == {"AllReduce": {"0": 9, "1": 9, "2": 8}}
    assert comm.errors == ("INCOMPLETE", "MISMATCH")
    assert [who.pid for who in seen.dead] == [403]
    (cut,) = parse(nccl_ras.PARSER, json.dumps(value)[:200], "ras.json")
    assert isinstance(cut, Ras)
    assert cut.error is not None


def test_monitor_events_keep_their_time_and_peer() -> None:
    """False in production: the order in which peers went away would be lost."""
    text = "[2026-11-29 10:00:05] PEER_DEAD: process 42 on node 10.0.0.2 [unreachable]\n"
    (seen,) = parse(nccl_ras.PARSER, text, "monitor.txt")
    assert isinstance(seen, Ras)
    assert [(who.pid, who.status) for who in seen.dead] == [(42, "PEER_DEAD")]
    assert seen.at_s is not None


DUMP = {
    "version": "2.10",
    "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
    "pg_status": {
        "0": {"last_enqueued_collective": "12", "last_started_collective": -1, "last_completed_collective": 10}
    },
    "entries": [
        {
            "process_group": ("0", "default_pg"), "collective_seq_id": seq, "profiling_name": "nccl:all_reduce",
            "time_created_ns": 10**18 + seq, "input_sizes": [[4, 8]], "input_dtypes": ["BFloat16"],
            "output_sizes": [[4, 8]], "state": "scheduled", "is_p2p": False,
            "frames": [{"name": "forward", "filename": "engine.py", "line": 7}],
        }
        for seq in (11, 12)
    ],
}  # fmt: skip


@pytest.mark.parametrize("data", [json.dumps(DUMP).encode(), pickle.dumps(DUMP, protocol=2), pickle.dumps(DUMP)])
def test_dumps_in_both_forms_give_the_same_trace(data: bytes) -> None:
    """False in production: torch's own pickle, or its JSON form, would be skipped as binary."""
    (seen,) = parse(flight_recorder.PARSER, data, "trace_rank_3")
    assert isinstance(seen, FlightTrace)
    assert seen.rank == 3
    (group,) = seen.groups
    assert (group.ranks, group.last_enqueued, group.last_started, group.last_completed) == ((0, 1), 12, -1, 10)
    assert [(entry.seq, entry.in_sizes, entry.state) for entry in seen.entries] == [
        (11, ((4, 8),), "scheduled"),
        (12, ((4, 8),), "scheduled"),
    ]
    assert seen.entries[0].frames == ("forward (engine.py:7)",)


class _Runs:
    """Its pickle runs a command when loaded by an ordinary unpickler."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (print, ("pg_config collective_seq_id entries: this must never be printed",))


@pytest.mark.parametrize(
    "data",
    [
        pickle.dumps({"pg_config": _Runs(), "entries": []}),
        pickle.dumps({"pg_config": {}, "x": complex(1)}),
        b"\x80\x02r\xff\xff\xff\x7f.",
        b"(" * 100 + b".",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x00abc.",
        b"\x80\x04\x82\x01.",
        b"\x80\x02}q",
        b"",
    ],
)
def test_a_pickle_that_is_more_than_plain_data_is_refused_unbuilt(
    data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    """False in production: a dump from a crashed or hostile process would run code in the analyser."""
    with pytest.raises(Refused):
        load_plain_pickle(data)
    assert capsys.readouterr().out == ""


def test_a_refused_dump_is_reported_with_its_reason() -> None:
    """False in production: a person would not learn why a rank has no trace."""
    data = pickle.dumps({"pg_config": _Runs(), "collective_seq_id": 1, "entries": []}, protocol=2)
    (seen,) = parse(flight_recorder.PARSER, data)
    assert isinstance(seen, Unavailable)
    assert "plain data" in seen.reason


def counters(text: str) -> list[tuple[str, dict[str, float], dict[str, str]]]:
    """Device, values and states of every sample."""
    return [
        (seen.device, dict(seen.values), dict(seen.states))
        for seen in parse(rdma_counters.PARSER, text)
        if isinstance(seen, DeviceCounters)
    ]


def test_samples_under_time_headers_stay_apart() -> None:
    """False in production: a counter that rises could not be told from one that is high."""
    text = "# 12:46:23\nmlx5_0 port_rcv_data 10\nmlx5_0 rx_write_requests 5\n# 12:46:53\nmlx5_0 port_rcv_data 12\n"
    found = [seen for seen in parse(rdma_counters.PARSER, text) if isinstance(seen, DeviceCounters)]
    assert [(seen.clock_s, seen.values["port_rcv_data"]) for seen in found] == [(45983.0, 10.0), (46013.0, 12.0)]


SYSFS = "/sys/class/infiniband/"
FORMS = {
    "relative path": ("mlx5_3/hw_counters/local_ack_timeout_err 29\n", "mlx5_3", {"local_ack_timeout_err": 29.0}, {}),
    "grep": (f"{SYSFS}rocep1/ports/1/hw_counters/out_of_sequence:7\n", "rocep1", {"out_of_sequence": 7.0}, {}),
    "tail": (f"==> {SYSFS}mlx5_0/ports/1/counters/port_xmit_wait <==\n17\n", "mlx5_0", {"port_xmit_wait": 17.0}, {}),
    "states": (
        f"{SYSFS}mlx5_2/ports/1/state: 1: DOWN\n{SYSFS}mlx5_2/ports/1/phys_state: 3: Disabled\n",
        "mlx5_2", {}, {"state": "DOWN", "phys_state": "DISABLED"},
    ),
    "ibstat": (
        "CA 'mlx5_0'\n\tCA type: MT4129\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n",
        "mlx5_0", {}, {"state": "ACTIVE", "phys_state": "LinkUp", "rate": "400"},
    ),
    "rdma link": (
        "link mlx5_0/1 state DOWN physical_state DISABLED netdev ens1f0\n",
        "mlx5_0", {}, {"state": "DOWN", "phys_state": "DISABLED", "netdev": "ens1f0"},
    ),
    "rdma statistic": (
        "link mlx5_0/1 rx_write_requests 12 local_ack_timeout_err 3\n",
        "mlx5_0", {"rx_write_requests": 12.0, "local_ack_timeout_err": 3.0}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_counters_and_states_are_read_in_every_form(form: str) -> None:
    """False in production: an operator's own way of dumping sysfs would hide a dead link."""
    text, device, values, states = FORMS[form]
    assert counters(text) == [(device, values, states)]


def test_a_second_port_is_a_device_of_its_own() -> None:
    """False in production: the counters of two links would overwrite each other."""
    root = "/sys/class/infiniband/mlx4_0/ports/"
    text = f"{root}1/counters/link_downed:0\n{root}2/counters/link_downed:4\n"
    assert [(device, values["link_downed"]) for device, values, _ in counters(text)] == [
        ("mlx4_0", 0.0),
        ("mlx4_0:2", 4.0),
    ]


def test_a_gid_table_lists_the_filled_indices_of_each_device() -> None:
    """False in production: a host without the configured GID would not be found."""
    text = (
        "DEV\tPORT\tINDEX\tGID\t\t\t\t\tIPv4  \t\tVER\tDEV\n---\t----\t-----\t---\t\t\t\t\t------------  \t---\t---\n"
        "mlx5_0\t1\t0\tfe80:0000:0000:0000:5aa2:e1ff:fe10:0a11\t\t\tv1\tens0\n"
        "mlx5_0\t1\t3\t0000:0000:0000:0000:0000:ffff:0a01:0001\t10.1.0.1  \tv2\tens0\n"
        "mlx5_1\t1\t1\t0000:0000:0000:0000:0000:0000:0000:0000\t\t\tv2\tens1\nn_gids_found=2\n"
    )
    (seen,) = parse(show_gids.PARSER, text)
    assert isinstance(seen, NicGids)
    assert seen.gids == {"mlx5_0": (0, 3), "mlx5_1": ()}


@pytest.mark.parametrize(
    "text",
    [
        "PATH=/bin\nNCCL_IB_GID_INDEX=3\nHF_TOKEN=abc\nVLLM_API_KEY=secret\n",
        "PATH=/bin\0NCCL_IB_GID_INDEX=3\0HF_TOKEN=abc\0VLLM_API_KEY=secret\0",
        "export PATH=/bin\nexport NCCL_IB_GID_INDEX='3'\nexport HF_TOKEN=abc\n",
        'declare -x NCCL_IB_GID_INDEX="3"\ndeclare -x AWS_SECRET="x"\n',
    ],
)
def test_only_settings_that_bear_on_a_hang_are_kept(text: str) -> None:
    """False in production: tokens and keys would end up in reports that are passed on."""
    (seen,) = parse(environment.PARSER, text, "environ_5200.txt")
    assert isinstance(seen, Environment)
    assert seen.values == {"NCCL_IB_GID_INDEX": "3"}
    assert seen.pid == 5200


def test_a_command_line_is_kept_without_its_secrets() -> None:
    """False in production: the engine's settings would be unknown, or its key published."""
    text = "python3 -m sglang.launch_server --tp 8 --api-key hunter2 --disable-cuda-graph --hf-token=abc"
    (seen,) = parse(environment.PARSER, text, "cmdline.txt")
    assert isinstance(seen, Environment)
    assert "--disable-cuda-graph" in seen.argv
    assert "hunter2" not in " ".join(seen.argv)
    assert "abc" not in " ".join(seen.argv)


def test_an_engine_log_that_mentions_a_variable_is_no_environment() -> None:
    """False in production: the log of a run would be swallowed for one line of it."""
    text = "[2026-11-29 10:00:00 TP0] Decode batch, #running-req: 1\nNCCL_DEBUG=INFO is set\n" * 3
    assert not environment.PARSER.recognise(Sample(text))
