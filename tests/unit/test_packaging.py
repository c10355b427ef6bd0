"""The wheel: built from this checkout and installed where nothing else of ours is, it works."""

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from sentinel import __version__
from sentinel.testing.corpus import unpack
from tests.tidy import sources

LIMIT_S = 240
SETUPTOOLS_MIN = 77
INCIDENT = "mutex"


def run(*argv: str | Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run with a clean environment, so that nothing of the checkout leaks in."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    return subprocess.run(
        list(map(str, argv)), cwd=cwd, env={**kept, **env}, capture_output=True, check=False, timeout=LIMIT_S, text=True
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tracked files, links kept as links, with the build tools that are here."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    listing = subprocess.run(
        ["git", "-C", str(sources.ROOT), "ls-files", "-z"], capture_output=True, check=True, text=True
    )
    for name in filter(None, listing.stdout.split("\0")):
        original = sources.ROOT / name
        if name.startswith(("sentinel", "collectors", "rules", "pyproject", "README", "LICENSE")) and original.exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(original, source / name, follow_symlinks=False)
    # With the development tools here the build needs no network; older ones are fetched for the build alone.
    here = ["--no-build-isolation"] if int(version("setuptools").partition(".")[0]) >= SETUPTOOLS_MIN else []
    built = run(sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", *here, "-w", folder, source, cwd=folder)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("engine_sentinel-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel; other packages come from this one, by a path file read last."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, with_pip=True, symlinks=True)
    python = home / "bin" / "python"
    done = run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel, cwd=home)
    assert done.returncode == 0, done.stderr
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "zz-dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    return home


def test_the_wheel_carries_collectors_rules_and_templates(wheel: Path) -> None:
    """False: an installed Sentinel has no parsers or no rules, because links were lost on the way."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())

    collectors = {f"sentinel/{module.path}" for module in sources.product() if module.room == "collectors"}
    rules = {f"sentinel/{name}" for name in sources.tracked() if name.startswith("rules/") and name.endswith(".yaml")}
    assert collectors <= names
    assert rules and rules <= names
    assert {
        "sentinel/py.typed",
        "sentinel/report/templates/report.html.j2",
        "sentinel/report/templates/report.css",
    } <= names
    assert {name.split("/")[0] for name in names} == {"sentinel", f"engine_sentinel-{__version__}.dist-info"}


def test_the_installed_command_says_its_version(installed: Path) -> None:
    """False: the first command after the installation fails."""
    said = run(installed / "bin" / "sentinel", "--version", cwd=installed)

    assert (said.returncode, said.stdout.strip()) == (0, f"sentinel, version {__version__}")


def test_the_installed_package_is_used_and_not_the_checkout(installed: Path) -> None:
    """False: the tests of the wheel test the checkout."""
    where = run(installed / "bin" / "python", "-c", "import sentinel; print(sentinel.__file__)", cwd=installed)

    assert Path(where.stdout.strip()).is_relative_to(installed.resolve())


def test_the_installed_command_judges_an_incident(installed: Path, tmp_path: Path) -> None:
    """False: the package installs but cannot do its one job away from the checkout."""
    evidence = unpack(sources.ROOT / "tests/corpus/recordings.tar.zst", tmp_path) / INCIDENT / "evidence"
    report = tmp_path / "report.html"
    judged = run(installed / "bin" / "sentinel", "analyze", evidence, "--html", report, cwd=tmp_path)

    assert judged.returncode == 1, judged.stderr
    assert judged.stdout.startswith("STALLED  hang.host_callback")
    assert "hang.host_callback" in report.read_text()


def test_the_package_imports_where_optional_parts_are_missing(installed: Path) -> None:
    """False: Sentinel does not start on a box without the NVIDIA driver, a bus client or stack tools."""
    code = "; ".join((
        "import sys",
        "sys.modules.update(dict.fromkeys(('pynvml', 'nats', 'py_spy', 'pystack')))",
        "import sentinel.cli.analyze",
        "print('ok')",
    ))  # fmt: skip
    done = run(installed / "bin" / "python", "-c", code, cwd=installed)

    assert done.stdout.strip() == "ok", done.stderr
