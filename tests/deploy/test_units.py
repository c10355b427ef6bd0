"""The units: systemd understands every line, their exposure stays low, and installing them hurts nobody."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from sentinel.cli import sentinel
from sentinel.deploy import hazards
from sentinel.deploy.units import OURS_TO_KEEP, PLACES, SHIPPED, wanted
from tests.tidy.sources import ROOT

ANALYZE = shutil.which("systemd-analyze")
pytestmark = pytest.mark.timeout(120)
MOST_EXPOSED = {
    "sentinel-agent.service": 2.0,
    "sentinel-helper@.service": 2.5,
    "sentinel-kstack@.service": 2.0,
    "sentinel-coordinator.service": 1.5,
}
UNITS = sorted(path.name for path in SHIPPED.iterdir() if path.suffix in (".service", ".socket", ".slice"))


def prefix(folder: Path) -> Path:
    """A folder that looks like an installation, so that systemd finds the programs."""
    (folder / "bin").mkdir(parents=True)
    for name in ("sentinel", "python"):
        (folder / "bin" / name).symlink_to("/bin/true")
    return folder


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze")
def test_systemd_has_nothing_to_say_about_the_units(tmp_path: Path) -> None:
    """If false, a misspelt directive is ignored, and the sandbox that it should make is not there."""
    home = prefix(tmp_path / "opt")
    for file in wanted(tmp_path, home):
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_text(file.text)
    paths = [str(tmp_path / PLACES[name]) for name in UNITS]
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stdout + ran.stderr) == (0, "")


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze")
def test_a_misspelt_directive_is_noticed(tmp_path: Path) -> None:
    """If false, the test above cannot fail."""
    text = (SHIPPED / "sentinel-agent.service").read_text().replace("/opt/sentinel/bin/sentinel watch", "/bin/true")
    (tmp_path / "sentinel-agent.service").write_text(text.replace("NoNewPrivileges", "NoNewPriviledges"))
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "sentinel-agent.service")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "NoNewPriviledges" in ran.stdout + ran.stderr


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", [name for name in UNITS if name.endswith(".service")])
def test_the_exposure_of_a_unit_stays_low(unit: str) -> None:
    """If false, somebody opened the sandbox and nobody noticed."""
    path = str(SHIPPED / unit)
    ran = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", path],
        capture_output=True,
        text=True,
        check=False,
    )
    score = re.search(r"exposure level for \S+: ([\d.]+)", ran.stdout)

    assert score is not None, ran.stdout + ran.stderr
    assert float(score[1]) <= MOST_EXPOSED[unit]


def test_only_the_helpers_may_trace_and_they_have_no_network() -> None:
    """If false, the process that parses what engines print could read their memory."""
    texts = {name: (SHIPPED / name).read_text() for name in UNITS}
    holders = [
        name for name, text in texts.items() if re.search(r"^CapabilityBoundingSet=.*SYS_PTRACE", text, re.MULTILINE)
    ]

    assert holders == ["sentinel-helper@.service", "sentinel-kstack@.service"]
    for name in holders:
        assert "PrivateNetwork=yes" in texts[name] and "RestrictAddressFamilies=AF_UNIX\n" in texts[name]
    assert [name for name in texts if "CAP_SYS_ADMIN" in texts[name]] == ["sentinel-kstack@.service"]
    for name, text in texts.items():
        if name.endswith(".service"):
            assert "CapabilityBoundingSet=" in text and "MemoryMax=" in text and "LimitCORE=0" in text, name


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(sentinel, ["install", *words])
    return result.exit_code, result.output


def test_a_plan_changes_nothing_and_an_installation_is_whole(tmp_path: Path) -> None:
    """If false, looking is already doing, or a unit is left out."""
    home, root = prefix(tmp_path / "opt"), tmp_path / "root"
    words = ("--root", str(root), "--prefix", str(home))
    code, plan = run("--plan", *words)
    assert code == 0 and plan.count("(new)") == len(PLACES) and not root.exists()
    assert run(*words)[0] == 0
    placed = {name: (root / place).read_text() for name, place in PLACES.items()}
    assert f"ExecStart={home}/bin/sentinel watch" in placed["sentinel-agent.service"]
    assert "/opt/sentinel" not in "".join(text for name, text in placed.items() if name.endswith(".service"))
    assert run("--plan", *words)[1].count("(same)") == len(PLACES)


def test_what_the_operator_edited_is_kept(tmp_path: Path) -> None:
    """If false, an upgrade would shut the helper off, or a removal take the configuration away."""
    home, root = prefix(tmp_path / "opt"), tmp_path / "root"
    words = ("--root", str(root), "--prefix", str(home))
    run(*words)
    mine = root / PLACES["helper.conf"]
    mine.write_text("user sentinel\nallow-cgroup /system.slice/vllm.service\n")
    (root / PLACES["sentinel.slice"]).write_text("[Slice]\n")
    assert "sentinel.slice (changed)" in run("--plan", *words)[1]
    run(*words)
    assert "vllm.service" in mine.read_text() and "MemoryMax" in (root / PLACES["sentinel.slice"]).read_text()
    run("--remove", *words)
    left = [name for name, place in PLACES.items() if (root / place).exists()]
    assert left == sorted(OURS_TO_KEEP)


def test_a_hazard_stops_the_installation(tmp_path: Path) -> None:
    """If false, it would go on and leave a unit that cannot start."""
    root = tmp_path / "root"
    code, said = run("--root", str(root), "--prefix", str(tmp_path / "nothing"), "--force")

    assert code == 1 and "does not exist" in said and "nothing was done" in said and not root.exists()


def test_containers_that_would_lose_their_gpus_are_found(tmp_path: Path) -> None:
    """If false, installing a watchdog would take the GPUs from the engine that it should watch."""
    proc, dev = tmp_path / "proc", tmp_path / "dev"
    (dev / "char").mkdir(parents=True)
    (dev / "nvidia0").symlink_to("/dev/null")
    for pid, group, device in (
        (100, "docker-0a.scope", "/dev/nvidia0"),
        (101, "x.service", "/dev/nvidia0"),
        (102, "docker-0b.scope", "/dev/null"),
    ):
        (proc / str(pid) / "fd").mkdir(parents=True)
        (proc / str(pid) / "cgroup").write_text(f"0::/system.slice/{group}\n")
        (proc / str(pid) / "fd" / "3").symlink_to(device)
    (proc / "self").mkdir()
    found = list(hazards.containers(proc, dev))
    (dev / "char" / "1:3").symlink_to("../nvidia0")

    assert list(hazards.gpu_containers(proc)) == [100]
    assert len(found) == 1 and "pids 100" in found[0].what and "daemon-reload" in found[0].what and found[0].forcible
    assert list(hazards.containers(proc, dev)) == []


def test_a_coordinator_of_its_own_is_enabled_only_where_it_is_asked_for() -> None:
    """If false, an upgrade would start a second process on every host, or leave one running that is out of date."""
    plain, asked = run("--plan")[1].splitlines(), run("--plan", "--coordinator")[1].splitlines()
    both = "sentinel-helper.socket sentinel-agent.service"

    assert any(line.startswith("write /etc/systemd/system/sentinel-coordinator.service") for line in plain)
    assert f"run systemctl enable {both}" in plain
    assert "run systemctl try-restart sentinel-coordinator.service" in plain
    assert f"run systemctl enable {both} sentinel-coordinator.service" in asked
    assert f"run systemctl restart {both} sentinel-coordinator.service" in asked
    assert not any("try-restart" in line for line in asked)


def test_the_units_are_part_of_the_package() -> None:
    """If false, `sentinel install` works in a checkout and nowhere else."""
    packaged = (ROOT / "pyproject.toml").read_text()

    assert SHIPPED.samefile(ROOT / "systemd") or sys.prefix in str(SHIPPED)
    assert all(f'"*{Path(name).suffix}"' in packaged for name in PLACES)
