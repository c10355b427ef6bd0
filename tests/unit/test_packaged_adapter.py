"""How the agent sees the processes of the co-packaged engine, by the command lines that it really has."""

import pytest

from sentinel.engines import packaged
from sentinel.engines.adapter import ProcessView
from sentinel.model.engine import ProcessId

SUPERVISOR = (
    "/bin/python3 -m sentinel_engine.worker --config e.json --rank 0,1 --world 4 --master 10.0.0.1:29500 "
    "--role launcher --watchdog-timeout 120 --host 0.0.0.0 --port 30000 --runtime-dir /run/e"
)
RANK = "/bin/python3 -m sentinel_engine.worker --role rank --rank 3 --world 4 --master 10.0.0.1:29500 --config e.json"
FRONTEND = "/bin/python3 -m sentinel_engine.api --role frontend --config e.json"
HOLDER = "/bin/python3 -m sentinel_engine.launcher.hold --role holder --folder f -- python3 -m sentinel_engine.worker"


def view(words: str) -> ProcessView:
    """A process with this command line."""
    return ProcessView(id=ProcessId(pid=7, started_ticks=7), ppid=1, argv=tuple(words.split()))


def test_the_supervisor_is_the_root_and_states_what_matters() -> None:
    """False: the agent misses the engine, its deadline or its API."""
    root = view(SUPERVISOR)
    deadline = packaged.deadline(root)

    assert packaged.claims(root) and packaged.place(root, ()).role == "launcher"
    assert deadline is not None and (deadline.earliest_s, deadline.latest_s) == (120.0, 180.0)
    assert packaged.url(root) == "http://127.0.0.1:30000"
    assert packaged.world_size(root) == 4


@pytest.mark.parametrize(("words", "role", "rank"), [(RANK, "rank", 3), (FRONTEND, "frontend", None)])
def test_its_children_have_their_places(words: str, role: str, rank: int | None) -> None:
    """False: a rank is taken for an engine of its own, or evidence lands at the wrong rank."""
    place = packaged.place(view(words), ())

    assert not packaged.claims(view(words))
    assert (place.role, place.rank) == (role, rank)


@pytest.mark.parametrize("words", [HOLDER, "/bin/python3 -m sentinel_engine.stage out", "/bin/rowstore stat page"])
def test_tools_of_the_engine_are_no_engine(words: str) -> None:
    """False: an offline tool is watched as an engine that makes no progress."""
    assert not packaged.claims(view(words))
