"""What only the embedded bus promises: durability against a kill, and a life after damage."""

import subprocess
import sys
from pathlib import Path

import pytest

from sentinel.bus.bus import BusDown
from sentinel.bus.embedded import EmbeddedBus

WRITER = """
import sys
from pathlib import Path
from sentinel.bus.embedded import EmbeddedBus
bus = EmbeddedBus(Path(sys.argv[1]))
number = 0
while True:
    number += 1
    bus.append("evt", b"%d" % number, str(number))
    print(number, flush=True)
"""


def test_a_record_that_was_confirmed_survives_a_kill(tmp_path: Path) -> None:
    """False: an effect is carried out although nothing remembers that it was decided."""
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        lines = [writer.stdout.readline() for _ in range(25)]
        writer.kill()
        lines += writer.stdout.readlines()
    confirmed = [int(line) for line in lines if line.endswith(b"\n")]

    kept = [int(record.data) for record in EmbeddedBus(tmp_path).follow("evt", 0, limit=100_000)]
    assert kept[: len(confirmed)] == confirmed and len(kept) <= len(confirmed) + 1


def test_a_damaged_database_is_set_aside_and_never_deleted(tmp_path: Path) -> None:
    """False: after a bad sector the coordinator does not start, or the history is lost for good."""
    bus = EmbeddedBus(tmp_path)
    for number in range(200):
        bus.append("evt", bytes(1000), str(number))
    bus.close()
    path = tmp_path / "bus.db"
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"no database at all" * 100)

    again = EmbeddedBus(tmp_path)
    assert again.follow("evt", 0) == ()
    assert again.write("lease", b"x", 0) > 0
    (aside,) = tmp_path.glob("bus.db.damaged-1")
    assert aside.stat().st_size == size
    again.close()


def test_a_folder_that_cannot_be_used_is_said_with_its_remedy(tmp_path: Path) -> None:
    """False: a full or missing disk ends the agent instead of the coordination alone."""
    (tmp_path / "file").write_text("")

    with pytest.raises(BusDown, match="permissions"):
        EmbeddedBus(tmp_path / "file" / "bus")


def test_the_log_is_bounded(tmp_path: Path) -> None:
    """False: a year of events fills the disk."""
    bus = EmbeddedBus(tmp_path)
    with bus._db:
        bus._db.executemany(
            "INSERT INTO records (log, key, data) VALUES ('evt', ?, x'00')", ((str(n),) for n in range(20_399))
        )
    bus.append("evt", b"last", "last")

    records = bus.follow("evt", 0, limit=100_000)
    assert len(records) == 20_000 and records[-1].data == b"last"
    bus.close()
