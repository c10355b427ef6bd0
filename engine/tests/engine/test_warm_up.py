"""The front end's first token: a real front end process, and the inbox that rank 0 has."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from clusters import WAIT_S, Node, settings

from sentinel_engine.config import dump_config
from sentinel_engine.inbox import Inbox


@contextmanager
def front_end(folder: Path) -> Iterator[tuple[Node, Inbox, str]]:
    config = settings(folder)
    Path(config.runtime_dir).mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(dump_config(config)))
    inbox = Inbox(Path(config.runtime_dir) / "frontend.sock")
    command = [sys.executable, "-m", "sentinel_engine.api", "--role", "frontend", "--config", path]
    node = Node(
        subprocess.Popen(
            command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
        )
    )  # fmt: skip
    try:
        yield node, inbox, f"http://127.0.0.1:{config.port}"
    finally:
        node.process.kill()
        node.process.wait()


def refuse(inbox: Inbox) -> str:
    """Fail the batch of the next request, as a gather that ran into its deadline does."""
    (asked,) = inbox.take(WAIT_S)
    inbox.send({"rid": asked["rid"], "error": "the batch failed", "retriable": True})
    rid: str = asked["rid"]
    return rid


def test_a_first_batch_that_fails_is_tried_again(tmp_path: Path) -> None:
    """False: an engine whose disk was slow for a second at its start never serves."""
    with front_end(tmp_path) as (node, inbox, url):
        for _ in range(2):
            assert refuse(inbox).startswith("WARM_UP")
        node.wait_for("Warm-up failed: the batch failed; 3 tries left")
        assert httpx.get(url + "/health", timeout=WAIT_S).status_code == 503
        (asked,) = inbox.take(WAIT_S)
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        inbox.send({"rid": asked["rid"], "tokens": [65]})
        inbox.send({"rid": asked["rid"], "finish": "length", "usage": usage})
        node.wait_for("fired up and ready to roll")
        assert httpx.get(url + "/health", timeout=WAIT_S).status_code == 200


def test_a_front_end_without_a_first_token_ends(tmp_path: Path) -> None:
    """False: the launcher waits its whole time-out for an engine that gave up."""
    with front_end(tmp_path) as (node, inbox, _):
        for _ in range(5):
            refuse(inbox)
        node.wait_for("Warm-up failed: the batch failed; 0 tries left")
        node.process.wait(WAIT_S)
