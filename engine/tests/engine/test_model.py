"""The model against its training: same logits for any number of ranks, drafts that are accepted."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from clusters import WAIT_S, Start, settings
from engine.logits import TEXT, TOKENS
from safetensors.torch import load_file

from sentinel_engine.config import TINY_MODEL, dump_config
from sentinel_engine.modelfile import (
    BOS,
    EOS,
    HISTORY,
    NgramHash,
    Tables,
    load_model_config,
    with_history,
)
from sentinel_engine.stage import mismatch, model_digest, stage

TOOLS = Path(__file__).parents[2] / "tools"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def expected() -> np.ndarray[Any, Any]:
    """Logits of the training's own forward pass with weights expanded by its own functions."""
    sys.path.insert(0, str(TOOLS))
    import train

    trainer = train.Trainer(load_model_config(TINY_MODEL))
    stored = load_file(TINY_MODEL / "model.safetensors")
    for name in trainer.weights:
        value = stored[name]
        if ".experts." in name:
            pairs = torch.stack((value % 16, value // 16), -1).flatten(-2).long()
            trainer.weights[name] = train.fp4_values(pairs, stored[name + ".scales"].float())
        elif name.endswith(".table"):
            codes, scales = value[:, :32].view(torch.float8_e4m3fn), value[:, 32:].float()
            blocks = codes.float().unflatten(-1, (8, 4)) * 2.0 ** (scales - 127).unsqueeze(-1)
            trainer.weights[name] = blocks.flatten(-2)
        else:
            trainer.weights[name] = value.float()
    with torch.no_grad():
        hidden = trainer.forward(torch.tensor([TOKENS]))
        found: np.ndarray[Any, Any] = (hidden[0] @ trainer.weights["head"].T).numpy()
    return found


@pytest.mark.parametrize("world", [1, 2, 3])
def test_ranks_compute_what_was_trained(
    tmp_path: Path, expected: np.ndarray[Any, Any], world: int
) -> None:
    """False: sharding, paging, chunking, dequantising or the row store changes the model."""
    config = settings(tmp_path, world=world, batch_shapes=[1], max_running=1)
    stage(config, tuple(range(world)))
    (tmp_path / "run").mkdir()
    path = tmp_path / "config.json"
    path.write_text(json.dumps(dump_config(config)))
    environment = os.environ | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(config.master_port)}
    out = tmp_path / "logits.npy"
    ranks = [
        subprocess.Popen(
            [sys.executable, HERE / "logits.py", str(rank), path, out], env=environment
        )
        for rank in range(world)
    ]
    assert [one.wait(WAIT_S) for one in ranks] == [0] * world
    np.testing.assert_allclose(np.load(out), expected, atol=2e-3, rtol=1e-3)


def test_a_slice_cut_short_is_written_again(tmp_path: Path) -> None:
    """False: a copy that broke off passes as a slice, and the engine fails after its start."""
    config, digest = settings(tmp_path, world=1), model_digest(TINY_MODEL)
    path = stage(config, (0,))[0]
    whole = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(whole - 1)
    assert str(whole) in mismatch(path, digest)
    stage(config, (0,))
    assert not mismatch(path, digest) and path.stat().st_size == whole


def test_ids_depend_on_the_text_before_alone() -> None:
    """False: rejected drafts leave traces, or a chunk's border changes the rows of a text."""
    model = load_model_config(TINY_MODEL)
    hashing = NgramHash(Tables(model), model.engram_layers[0])
    text = [BOS, *TEXT[:50]]
    whole = hashing.ids(with_history(text, 0))
    for cut in (1, 2, 3, 17):
        np.testing.assert_array_equal(hashing.ids(with_history(text, cut)), whole[cut:])
    other = hashing.ids(with_history([*text[:20], EOS, *text[21:]], 0))
    assert (other[:20] == whole[:20]).all() and (other[24:] == whole[24:]).all()
    assert (other[20 : 20 + HISTORY + 1] != whole[20 : 20 + HISTORY + 1]).any()


def test_drafts_are_accepted_on_text_that_was_held_out(start: Start) -> None:
    """False: speculation costs time instead of saving it."""
    cluster = start(world=1, draft_tokens=3)
    for k in range(12):
        prompt = TEXT[k * 150 : k * 150 + 140].decode()
        cluster.text(prompt, 60)
    accepted = cluster.metric("sentinel_engine_accepted_drafts_total")
    rate = accepted / cluster.metric("sentinel_engine_drafted_total")
    print(f"acceptance {rate:.3f}")
    assert rate > 0.5
