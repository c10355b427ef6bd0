"""Starts engines for the tests of a module, and ends them."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest
from clusters import WAIT_S, Cluster, Node, Start, settings, start_node

from sentinel_engine.stage import SAMPLE, stage


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts engines on one node, waits until they are ready, and leaves none behind."""
    started: list[Node] = []

    def up(*, sample: str = SAMPLE, **given: Any) -> Cluster:
        folder = tmp_path_factory.mktemp("engine")
        config = settings(folder, **given)
        stage(config, tuple(range(config.world)), sample)
        ranks = ",".join(str(rank) for rank in range(config.world))
        node = start_node(folder, config, ranks)
        started.append(node)
        node.wait_for("ready to roll")
        return Cluster(config, [node])

    yield up
    for node in started:
        if node.process.poll() is None:
            node.process.send_signal(signal.SIGQUIT)
            node.process.wait(WAIT_S)
