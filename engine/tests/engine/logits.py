"""One rank that feeds a text in two chunks: `logits.py RANK CONFIG OUT`; rank 0 writes logits."""

import sys
from pathlib import Path

import numpy as np
import torch

from sentinel_engine.config import load_config
from sentinel_engine.engine import Engine
from sentinel_engine.runner import Work
from sentinel_engine.scheduler import Request

TEXT = (Path(__file__).parent / "held_out.txt").read_bytes()
TOKENS = [256, *TEXT[:99]]
CUT = 64


def main() -> None:
    """Run it."""
    rank, config = int(sys.argv[1]), load_config(Path(sys.argv[2]))
    torch.set_num_threads(1)
    engine = Engine(config, rank, None)
    request = Request("text", list(TOKENS), len(TOKENS), 1, {})
    engine.scheduler.add(request)
    assert list(engine.scheduler.admit()) == [request]
    parts = []
    for start, end in ((0, CUT), (CUT, len(TOKENS))):
        chunk = TOKENS[start:end]
        parts.append(engine.runner.forward([Work(request, start, chunk)], len(chunk))[0][0].numpy())
        assert engine.runner.feed.outcome() == "ok"
    if rank == 0:
        np.save(sys.argv[3], np.concatenate(parts))
    engine.peers.barrier()
    engine.peers.close()
    engine.store.close()


if __name__ == "__main__":
    main()
