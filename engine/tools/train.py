"""Trains the tiny byte-level model that ships with the engine, and measures its draft head.

    python engine/tools/train.py engine/sentinel_engine/assets/tiny

The text is free: docstrings of CPython's standard library (of the interpreter that runs this) and
the documents of this repository; about every twentieth document is held out. Experts and Engram
rows are trained through their 4 and 8 bit formats, so what is written is what was trained. The
draft head learns the model's own next-token distributions from its hidden states.
"""

import argparse
import ast
import json
import math
import sysconfig
import time
import zlib
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from sentinel_engine.model import (
    FP4_PER_SCALE,
    draft_step,
    engram_gate,
    experts,
    rms_norm,
    rotate,
    rotation,
    route,
)  # fmt: skip
from sentinel_engine.modelfile import (
    BOS,
    EOS,
    HISTORY,
    VOCAB,
    ModelConfig,
    NgramHash,
    Tables,
)  # fmt: skip
from sentinel_engine.rowstore.numbers import E2M1_PAIRS

TINY = ModelConfig(
    name="sentinel-tiny", dim=96, layers=3, heads=4, kv_heads=2, head_dim=24, experts=8,
    experts_per_token=2, expert_hidden=32, shared_hidden=96, engram_layers=(1, 2),
    engram_heads_per_order=4, engram_rows=1400, engram_dim=32, draft_hidden=192,
)  # fmt: skip
FP4_VALUES = torch.from_numpy(E2M1_PAIRS[:16, 0].copy())
"""By code: a byte below 16 has a zero for its second one."""
HELD_OUT_EVERY = 20
DRAFTS = 3


def documents(root: Path) -> list[tuple[str, str]]:
    """Names and texts: docstrings of a standard library module each, the repository's documents."""
    library = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).parts
        if {"test", "tests", "site-packages", "idlelib", "lib2to3"} & set(parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        nodes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        texts = [ast.get_docstring(one) for one in ast.walk(tree) if isinstance(one, nodes)]
        text = "\n\n".join(one for one in texts if one)
        if len(text) > 200:
            found.append(("/".join(parts), text))
    papers = sorted((root / "docs").glob("*.md"))
    return found + [(path.name, path.read_text()) for path in papers]


def held_out(name: str) -> bool:
    """Whether a document is kept from training; its name decides, in any version of Python."""
    return zlib.crc32(name.encode()) % HELD_OUT_EVERY == 0


def corpus(root: Path) -> tuple[np.ndarray, np.ndarray]:
    """Tokens to train on, and tokens held out; each document between its marks."""
    parts: tuple[list[int], list[int]] = ([], [])
    for name, text in documents(root):
        parts[held_out(name)].extend([BOS, *text.encode("ascii", "replace"), EOS])
    return np.array(parts[0], dtype=np.int64), np.array(parts[1], dtype=np.int64)


def to_mxfp4(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Codes 0 to 15 and exponents of blocks of 32 along the last axis."""
    blocks = weight.unflatten(-1, (-1, FP4_PER_SCALE))
    most = blocks.abs().amax(-1, keepdim=True).clamp_min(2.0**-100)
    exponent = (most / 6.0).log2().ceil()
    scaled = blocks / 2.0**exponent
    edges = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
    codes = torch.bucketize(scaled.abs(), edges) + 8 * (scaled < 0)
    return codes.flatten(-2), exponent.squeeze(-1) + 127


def fp4_values(codes: Tensor, exponents: Tensor) -> Tensor:
    """What `to_mxfp4` stands for."""
    blocks = FP4_VALUES[codes].unflatten(-1, (-1, FP4_PER_SCALE))
    return (blocks * 2.0 ** (exponents - 127).unsqueeze(-1)).flatten(-2)


def to_fp8(rows: Tensor, per_scale: int) -> tuple[Tensor, Tensor]:
    """e4m3 values, and exponents of blocks."""
    blocks = rows.unflatten(-1, (-1, per_scale))
    most = blocks.abs().amax(-1, keepdim=True).clamp_min(2.0**-100)
    exponent = (most / 448.0).log2().ceil()
    return (blocks / 2.0**exponent).to(torch.float8_e4m3fn), exponent + 127


def through(exact: Tensor, coarse: Tensor) -> Tensor:
    """The coarse value forwards, the exact one's gradient backwards."""
    return exact + (coarse - exact).detach()


class Trainer:
    """Parameters in full precision, and the forward pass that the engine splits over ranks."""

    def __init__(self, model: ModelConfig) -> None:
        self.model, self.coarse = model, False
        torch.manual_seed(7)
        m, width = model, model.heads * model.head_dim
        rows = sum(one.count for one in Tables(m).heads(m.engram_layers[0]))
        shapes: dict[str, tuple[int, ...]] = {
            "embed": (VOCAB, m.dim), "head": (VOCAB, m.dim), "norm": (m.dim,),
            "draft.norm": (m.dim,), "draft.up": (m.draft_hidden, 2 * m.dim),
            "draft.down": (m.dim, m.draft_hidden), "draft.skip": (m.dim, 2 * m.dim),
        }  # fmt: skip
        for layer in range(m.layers):
            kv = m.kv_heads * m.head_dim
            each: dict[str, tuple[int, ...]] = {
                "attention_norm": (m.dim,), "q": (width, m.dim), "k": (kv, m.dim),
                "v": (kv, m.dim), "o": (m.dim, width), "expert_norm": (m.dim,),
                "router": (m.experts, m.dim), "shared.up": (2 * m.shared_hidden, m.dim),
                "shared.down": (m.dim, m.shared_hidden),
                "experts.up": (m.experts, 2 * m.expert_hidden, m.dim),
                "experts.down": (m.experts, m.dim, m.expert_hidden),
            }  # fmt: skip
            if layer in m.engram_layers:
                each |= {
                    "engram.norm": (m.dim,), "engram.key_norm": (m.dim,),
                    "engram.kv": (2 * m.dim, m.engram_heads * m.engram_dim),
                    "engram.table": (rows, m.engram_dim),
                }  # fmt: skip
            shapes |= {f"layers.{layer}.{name}": shape for name, shape in each.items()}
        self.weights = {name: self._start(name, shape) for name, shape in shapes.items()}
        self.hashes = {layer: NgramHash(Tables(m), layer) for layer in m.engram_layers}

    def _start(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name.endswith("norm"):
            value = torch.ones(shape)
        else:
            value = torch.randn(shape) * (0.5 if "table" in name else shape[-1] ** -0.5)
            if name == "embed":
                value *= shape[-1] ** 0.5 * 0.5
        return value.requires_grad_()

    def forward(self, tokens: Tensor) -> Tensor:
        """Normalised hidden states of `(B, T)` tokens, each row a text of its own."""
        m, w, eps = self.model, self.weights, self.model.norm_eps
        x = F.embedding(tokens, w["embed"])
        cos, sin = rotation(m, torch.arange(tokens.shape[1])[None])
        for layer in range(m.layers):
            name = f"layers.{layer}."
            if layer in m.engram_layers:
                x = x + self._engram(layer, tokens, x)
            h = rms_norm(x, w[name + "attention_norm"], eps)
            q, k, v = (
                F.linear(h, w[name + one]).unflatten(-1, (-1, m.head_dim)) for one in "qkv"
            )
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
            q, k, v = (one.transpose(1, 2) for one in (q, k, v))
            groups = m.heads // m.kv_heads
            k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.linear(mixed.transpose(1, 2).flatten(-2), w[name + "o"])
            x = x + self._experts(name, rms_norm(x, w[name + "expert_norm"], eps))
        return rms_norm(x, w["norm"], eps)

    def _engram(self, layer: int, tokens: Tensor, x: Tensor) -> Tensor:
        w, name, eps = self.weights, f"layers.{layer}.engram.", self.model.norm_eps
        padded = F.pad(tokens, (HISTORY, 0), value=BOS).numpy()
        ids = torch.from_numpy(np.stack([self.hashes[layer].ids(row) for row in padded]))
        table = w[name + "table"]
        if self.coarse:
            values, exponents = to_fp8(table.detach(), self.model.row_format.codes_per_scale)
            table = through(table, (values.float() * 2.0 ** (exponents - 127)).flatten(-2))
        both = F.linear(F.embedding(ids, table).flatten(-2), w[name + "kv"])
        key, value = both.chunk(2, -1)
        key = rms_norm(key, w[name + "key_norm"], eps)
        return engram_gate(rms_norm(x, w[name + "norm"], eps), key) * value

    def _experts(self, name: str, h: Tensor) -> Tensor:
        w, flat = self.weights, h.flatten(0, 1)
        gate, up = F.linear(h, w[name + "shared.up"]).chunk(2, -1)
        out = F.linear(F.silu(gate) * up, w[name + "shared.down"])
        logits = F.linear(flat, w[name + "router"])
        chosen = route(logits, self.model.experts_per_token)
        self.balance = self.balance + self._imbalance(logits, chosen)
        wide, narrow = self._fp4(w[name + "experts.up"]), self._fp4(w[name + "experts.down"])
        return out + experts(flat, chosen, wide, narrow).view_as(h)

    balance: Tensor = torch.zeros(())

    def _imbalance(self, logits: Tensor, chosen: Tensor) -> Tensor:
        """Smallest when every expert is chosen equally often."""
        share = chosen.gt(0).float().mean(0)
        return (share * logits.softmax(-1).mean(0)).sum() * self.model.experts

    def _fp4(self, weight: Tensor) -> Tensor:
        return through(weight, fp4_values(*to_mxfp4(weight.detach()))) if self.coarse else weight

    def loss(self, tokens: Tensor, *, drafting: bool) -> tuple[Tensor, Tensor]:
        """Next-token loss and the draft head's distance from the model, in nats a token."""
        w, eps = self.weights, self.model.norm_eps
        self.balance = torch.zeros(())
        hidden = self.forward(tokens[:, :-1])
        logits = F.linear(hidden, w["head"])
        plain = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        distance = torch.zeros(())
        if drafting:
            target, state = logits.detach().softmax(-1), hidden.detach()
            for ahead in range(1, DRAFTS + 1):
                state = draft_step(
                    w, state[:, :-1], F.embedding(tokens[:, ahead:-1], w["embed"].detach()), eps
                )
                guess = F.linear(rms_norm(state, w["norm"].detach(), eps), w["head"].detach())
                wanted = target[:, ahead:]
                distance = distance + F.cross_entropy(
                    guess.flatten(0, 1), wanted.flatten(0, 1)
                ) / DRAFTS  # fmt: skip
        return plain, distance

    def save(self, folder: Path) -> None:
        """Write `config.json` and `model.safetensors` in the formats the engine reads."""
        folder.mkdir(parents=True, exist_ok=True)
        tensors: dict[str, Tensor] = {}
        for name, weight in self.weights.items():
            value = weight.detach()
            if ".experts." in name:
                codes, exponents = to_mxfp4(value)
                tensors[name] = (codes[..., ::2] + 16 * codes[..., 1::2]).to(torch.uint8)
                tensors[name + ".scales"] = exponents.to(torch.uint8)
            elif name.endswith(".table"):
                codes8, exponents = to_fp8(value, self.model.row_format.codes_per_scale)
                flat = codes8.flatten(-2).view(torch.uint8)
                tensors[name] = torch.cat((flat, exponents.flatten(-2).to(torch.uint8)), -1)
            else:
                tensors[name] = value.to(torch.float16)
        save_file(tensors, folder / "model.safetensors")
        text = json.dumps(asdict(self.model), indent=1)
        (folder / "config.json").write_text(text + "\n")


def accepted(trainer: Trainer, tokens: Tensor) -> float:
    """Share of drafted tokens that the model itself would have chosen, guesses fed back.

    Counted as the engine counts: after the first wrong guess the rest of a draft is lost.
    """
    w, eps = trainer.weights, trainer.model.norm_eps
    with torch.no_grad():
        hidden = trainer.forward(tokens)
        choice = F.linear(hidden, w["head"]).argmax(-1)
        state, token = hidden[:, :-DRAFTS], choice[:, :-DRAFTS]
        # Only where the model chooses what the text has does the text go on as the model would.
        good = token == tokens[:, 1 : 1 + token.shape[1]]
        taken, alive, drafts = 0, good, int(good.sum()) * DRAFTS
        for ahead in range(1, DRAFTS + 1):
            state = draft_step(w, state, F.embedding(token, w["embed"]), eps)
            token = F.linear(rms_norm(state, w["norm"], eps), w["head"]).argmax(-1)
            alive = alive & (token == choice[:, ahead : ahead + token.shape[1]])
            taken += int(alive.sum())
            alive = alive & (token == tokens[:, ahead + 1 : ahead + 1 + token.shape[1]]) if (
                ahead < DRAFTS
            ) else alive  # fmt: skip
    return taken / max(drafts, 1)


def main() -> None:
    """Train, report, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=1100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    train, held = corpus(Path(__file__).parents[2])
    print(f"{len(train)} tokens to train on, {len(held)} held out", flush=True)
    trainer = Trainer(TINY)
    wide = [p for n, p in trainer.weights.items() if p.dim() > 1 and "table" not in n]
    rest = [p for n, p in trainer.weights.items() if p.dim() == 1]
    tables = [p for n, p in trainer.weights.items() if "table" in n]
    optimiser = torch.optim.AdamW(
        [{"params": wide, "weight_decay": 0.05, "share": 1.0},
         {"params": rest, "weight_decay": 0.0, "share": 1.0},
         {"params": tables, "weight_decay": 0.0, "share": 3.0}], betas=(0.9, 0.98),
    )  # fmt: skip
    draw = np.random.default_rng(7)
    began = time.monotonic()
    for step in range(given.steps):
        done = step / given.steps
        rate = 4e-3 * min(1.0, (step + 1) / 50) * (0.03 + 0.97 * (1 + math.cos(math.pi * done)) / 2)
        for group in optimiser.param_groups:
            group["lr"] = rate * group["share"]
        trainer.coarse, drafting = done > 0.7, done > 0.5
        starts = draw.integers(0, len(train) - given.length - 1, given.batch)
        rows = torch.from_numpy(np.stack([train[s : s + given.length + 1] for s in starts]))
        plain, distance = trainer.loss(rows, drafting=drafting)
        optimiser.zero_grad(set_to_none=True)
        (plain + distance + 0.01 * trainer.balance).backward()
        torch.nn.utils.clip_grad_norm_(wide + rest + tables, 1.0)
        optimiser.step()
        if step % 25 == 0:
            took = time.monotonic() - began
            print(f"step {step} loss {plain:.3f} draft {distance:.3f} {took:.0f} s", flush=True)
    trainer.coarse = True
    count = min(len(held) // given.length, 64)
    rows = torch.from_numpy(held[: count * given.length].reshape(count, given.length))
    with torch.no_grad():
        plain, distance = trainer.loss(rows, drafting=True)
    print(f"held out: loss {plain:.3f}, draft {distance:.3f}, "
          f"accepted {accepted(trainer, rows):.3f} of {DRAFTS} drafted")  # fmt: skip
    trainer.save(given.out)


if __name__ == "__main__":
    main()
