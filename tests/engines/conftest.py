"""Real engines run only when they are asked for (`-m engines`), and only where they are installed."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.cases import Ward

OUT = Path(os.environ.get("SENTINEL_ENGINES_OUT", "out/engines"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of this folder out unless they are asked for by their mark."""
    if "engines" in config.getoption("markexpr", default=""):
        return
    here = Path(__file__).parent
    left_out = [item for item in items if here in item.path.parents]
    if left_out:
        # Deselected, not skipped: a skip is a test that this machine cannot run.
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if here not in item.path.parents]


@pytest.fixture(scope="session")
def out() -> Path:
    """Where measurements, logs and journals of this run are kept."""
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir(parents=True)
    return OUT.resolve()


@pytest.fixture(scope="module")
def wards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Ward]]:
    """Wards by name; at most one has an engine at a time, because an engine needs both cores."""
    found: dict[str, Ward] = {}
    yield found
    for ward in found.values():
        ward.discard()
