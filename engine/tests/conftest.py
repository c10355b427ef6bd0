"""Fixtures of the store: a shared table, processes that end with their test, no faults left."""

from collections.abc import Callable, Iterator
from pathlib import Path

import installed  # noqa: F401  (first: decides which sentinel_engine is imported)
import pytest
from tables import Child, make_table

from sentinel_engine.rowstore import native


@pytest.fixture
def child() -> Iterator[Callable[..., Child]]:
    """Starts children and leaves none behind."""
    children: list[Child] = []

    def start(script: str, *arguments: str | Path) -> Child:
        children.append(Child(script, *arguments))
        return children[-1]

    yield start
    for each in children:
        each.kill()


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sliced table, shared by tests that only read it."""
    return make_table(tmp_path_factory.mktemp("table") / "layer7.rws")


@pytest.fixture
def no_faults() -> Iterator[None]:
    """Injected faults are process-wide: clear them before and after."""
    core = native.load(native.INJECT_LIBRARY)
    core.rs_inject(None, b"clear")
    yield
    core.rs_inject(None, b"clear")
