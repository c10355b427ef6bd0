"""systemd and Docker as they are asked, with programs of the same names that answer and note the questions."""

import os
import sys
from pathlib import Path

import pytest

from sentinel.actions.supervisors import Docker, Packaged, Systemd, by_process, owner_of
from sentinel.groups import GroupError, Supervisor, coordination
from sentinel.model.engine import ProcessId

PROGRAM = """#!{python}
import pathlib, sys
home = pathlib.Path({home!r})
with (home / "asked").open("a") as file:
    print(*sys.argv[1:], file=file)
answer = home / ("answer." + sys.argv[1])
if not answer.exists():
    sys.exit(1)
print(answer.read_text(), end="")
"""


class Tool:
    """A program on the path; `answers` per first argument, anything else fails."""

    def __init__(self, folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.home = folder / name
        self.home.mkdir()
        program = self.home / name
        program.write_text(PROGRAM.format(python=sys.executable, home=str(self.home)))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{self.home}{os.pathsep}{os.environ['PATH']}")

    def answers(self, verb: str, text: str = "") -> None:
        (self.home / f"answer.{verb}").write_text(text)

    @property
    def asked(self) -> list[str]:
        return (self.home / "asked").read_text().splitlines()


@pytest.mark.parametrize(
    ("shown", "running"),
    [
        ("ActiveState=active\nInvocationID=abc\n", "systemd:abc"),
        ("ActiveState=deactivating\nInvocationID=abc\n", "systemd:abc"),
        ("ActiveState=inactive\nInvocationID=\n", ""),
        ("ActiveState=failed\nInvocationID=abc\n", ""),
        ("nonsense\n", None),
    ],
)
def test_a_unit_is_known_by_its_invocation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str, running: str | None
) -> None:
    """False: a unit that systemd restarted by itself is stopped for what its last invocation did."""
    tool = Tool(tmp_path, "systemctl", monkeypatch)
    tool.answers("show", shown)

    assert Systemd("chat.service").running(None) == running
    assert tool.asked == ["show --property=ActiveState,InvocationID chat.service"]


def test_a_unit_whose_manager_does_not_answer_is_unknown_and_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False: a stuck manager looks like a stopped engine, and a second one is started."""
    Tool(tmp_path, "systemctl", monkeypatch)

    assert Systemd("chat.service").running(None) is None


def test_a_unit_is_stopped_killed_and_started_by_its_manager_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """False: processes are killed behind the manager's back and it starts one rank alone."""
    tool = Tool(tmp_path, "systemctl", monkeypatch)
    for verb in ("stop", "kill", "start", "set-environment"):
        tool.answers(verb)
    unit = Systemd("chat.service")

    assert unit.stop("systemd:abc", 5.0).ok and unit.start("mark", "ram", 5.0).ok
    unit.kill([ProcessId(os.getpid(), 1)])
    assert tool.asked == [
        "stop chat.service",
        "set-environment SENTINEL_STORE_MODE=ram",
        "start --no-block chat.service",
        "kill --signal=KILL chat.service",
    ]


def test_a_container_is_known_by_id_and_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """False: `docker restart` gives the same id, and the new life is taken for the old one."""
    tool = Tool(tmp_path, "docker", monkeypatch)
    tool.answers("inspect", "true 1f2e 2026-11-29T10:00:00.1Z\n")
    container = Docker("chat")

    assert container.running(None) == "docker:1f2e@2026-11-29T10:00:00.1Z"
    tool.answers("inspect", "false 1f2e 2026-11-29T10:00:00.1Z\n")
    assert container.running(None) == ""
    assert not container.start("mark", "ram", 5.0).ok
    assert all("start" not in line for line in tool.asked)


def test_the_launcher_is_told_which_launch_to_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """False: a late stop ends the launch that replaced the one that was meant."""
    tool = Tool(tmp_path, "sentinel-engine", monkeypatch)
    tool.answers("stop")

    assert Packaged("/etc/chat.toml").stop("packaged:l-7", 5.0).ok
    assert tool.asked == ["stop /etc/chat.toml --incarnation l-7"]
    assert Packaged("/etc/chat.toml").running(None) == ""


def test_a_process_is_told_from_a_later_one_with_its_pid() -> None:
    """False: whoever inherits the pid inherits the sentence."""
    assert by_process(ProcessId(7, 1)) != by_process(ProcessId(7, 2)) and by_process(None) == ""


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ({"chat": {"supervisor": {"kind": "systemd"}}}, "supervisor.unit is needed"),
        ({"chat": {"hosts": ["a", "a"]}}, "twice"),
        ({"a/b": {}}, "is not a name"),
        ({"chat": {"ports": 1}}, "ports"),
        ({"chat": {"hosts": ["a", "b"], "supervisor": {"kind": "packaged", "cluster": "x"}}}, "launches"),
    ],
)
def test_a_group_that_cannot_work_is_refused_with_its_key(groups: dict[str, object], words: str) -> None:
    """False: a typing error shows at three in the morning, when the engine should have been restarted."""
    with pytest.raises(GroupError, match=words):
        coordination({"groups": groups})


def test_every_kind_of_supervisor_has_an_owner() -> None:
    """False: a kind is accepted in the configuration and does nothing."""
    kinds = {type(owner_of(Supervisor(kind=kind))).__name__ for kind in ("systemd", "docker", "command", "packaged")}

    assert kinds == {"Systemd", "Docker", "CommandPair", "Packaged"}
