"""The model: attention over a paged KV cache, Engram layers, experts in MXFP4, and a draft head.

Each rank holds its share of every layer: query heads, whole experts, columns of the shared expert,
hash heads, rows of the vocabulary. Any number of ranks works; a share may be empty. Partial results
are summed by one all-reduce each after attention, Engram and experts; logits are gathered.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor

from .collectives import Collectives
from .modelfile import VOCAB, ModelConfig, Tables
from .rowstore.numbers import E2M1_PAIRS, E4M3, UE8M0

RowsOf = Callable[[int], Tensor]
"""Rows of the n-th Engram layer for this step: `(batch, tokens, heads, row_bytes)`, uint8."""

FP4_PER_SCALE = 32


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Scale to unit mean square, times a weight."""
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rotation(model: ModelConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines `(..., head_dim / 2)` of rotary positions."""
    steps = torch.arange(0, model.head_dim, 2, device=positions.device) / model.head_dim
    angles = positions[..., None].float() * model.rope_theta**-steps
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate `(batch, tokens, heads, head_dim)`; halves are the two coordinates."""
    one, two = x.chunk(2, dim=-1)
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    return torch.cat((one * cos - two * sin, two * cos + one * sin), dim=-1)


def engram_gate(hidden: Tensor, key: Tensor) -> Tensor:
    """How much of a looked-up value enters: a sigmoid of the signed root of the similarity."""
    similarity = (hidden * key).sum(-1, keepdim=True) / hidden.shape[-1] ** 0.5
    return torch.sigmoid(similarity.sign() * (similarity.abs() + 1e-6).sqrt())


def route(logits: Tensor, chosen: int) -> Tensor:
    """Weights of all experts, zero but for the `chosen` best, which share one."""
    best, index = logits.topk(chosen, dim=-1)
    return torch.zeros_like(logits).scatter(-1, index, best.softmax(-1))


def experts(x: Tensor, chosen: Tensor, wide: Tensor, narrow: Tensor) -> Tensor:
    """Sum of the experts' results, weighted by `chosen` `(n, experts)`.

    Every expert sees every token and those not chosen weigh nothing: shapes do not depend on the
    routing, so a captured graph serves any of it.
    """
    gate, up = F.linear(x, wide.flatten(0, 1)).unflatten(1, (len(wide), -1)).chunk(2, -1)
    inner = F.silu(gate) * up * chosen.unsqueeze(-1)
    return F.linear(inner.flatten(1), narrow.transpose(0, 1).flatten(1))


def draft_step(weights: dict[str, Tensor], state: Tensor, embedded: Tensor, eps: float) -> Tensor:
    """The draft head's next state, from its last one and the embedding of the token it chose."""
    mixed = torch.cat((rms_norm(state, weights["draft.norm"], eps), embedded), -1)
    inner = F.silu(F.linear(mixed, weights["draft.up"]))
    return F.linear(mixed, weights["draft.skip"]) + F.linear(inner, weights["draft.down"])


def from_fp8(row_codes: Tensor, row_scales: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    """Values of rows `(..., dim)` by look-up in the tables of codes and scales."""
    values = F.embedding(row_codes.int(), codes).squeeze(-1)
    factors = F.embedding(row_scales.int(), scales).squeeze(-1)
    blocks: Tensor = values.unflatten(-1, (factors.shape[-1], -1)) * factors.unsqueeze(-1)
    return blocks.flatten(-2)


def from_mxfp4(codes: Tensor, exponents: Tensor, pairs: Tensor, scales: Tensor) -> Tensor:
    """Weights `(..., n)` from packed codes `(..., n/2)` and one ue8m0 exponent per 32 of them."""
    values = F.embedding(codes.int(), pairs).flatten(-2)
    factors = F.embedding(exponents.int(), scales)
    blocks: Tensor = values.unflatten(-1, (-1, FP4_PER_SCALE)) * factors
    return blocks.flatten(-2)


class Batch(NamedTuple):
    """A padded step: `(B, T)` tokens with positions and cache slots, `(B, S)` slots to attend to.

    Slot 0 belongs to no request: padding is written there.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    context: Tensor


class Model:
    """One rank's share of the model and its KV cache."""

    def __init__(
        self, tables: Tables, folder: Path, peers: Collectives, *, device: torch.device,
        cache_slots: int,
    ) -> None:  # fmt: skip
        self.tables, self.peers, self.device = tables, peers, device
        self.model = model = tables.model
        self.heads = _share(model.heads, peers)
        self._own_experts = _share(model.experts, peers)
        group = model.heads // model.kv_heads
        kv_heads = sorted({head // group for head in self.heads})
        self._kv_of_head = torch.tensor(
            [kv_heads.index(head // group) for head in self.heads], device=device, dtype=torch.long
        )
        self.weights = _load(folder, model, peers, self.heads, kv_heads, device)
        self._codes = torch.from_numpy(E4M3[:, None].copy()).to(device)
        self._pairs = torch.from_numpy(E2M1_PAIRS).to(device)
        self._scales = torch.from_numpy(UE8M0[:, None].copy()).to(device)
        shape = (model.layers, 2, cache_slots, len(kv_heads), model.head_dim)
        self.cache = torch.zeros(shape, device=device)

    def forward(self, batch: Batch, rows_of: RowsOf) -> Tensor:
        """Normalised hidden states `(B, T, dim)`, the same on every rank."""
        model, weights = self.model, self.weights
        x = F.embedding(batch.tokens, weights["embed"])
        cos, sin = rotation(model, batch.positions)
        reach = torch.arange(batch.context.shape[1], device=self.device)
        mask = (reach <= batch.positions[..., None]).unsqueeze(1)
        for layer in range(model.layers):
            if layer in model.engram_layers:
                x = x + self._engram(layer, x, rows_of(model.engram_layers.index(layer)))
            x = x + self._attention(layer, x, batch, cos, sin, mask)
            x = x + self._experts(layer, x)
        return rms_norm(x, weights["norm"], model.norm_eps)

    @property
    def collectives(self) -> int:
        """Collectives of a forward pass with its logits."""
        return 2 * self.model.layers + len(self.model.engram_layers) + 1

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits `(..., VOCAB)` of normalised hidden states, gathered from all ranks."""
        part = F.linear(hidden, self.weights["head"])
        whole = self.peers.all_gather(part.contiguous())
        return whole.movedim(0, -2).flatten(-2)[..., :VOCAB]

    def draft(self, state: Tensor, token: Tensor, count: int) -> Tensor:
        """`count` greedy guesses `(B, count)` at what follows `token`, from hidden states."""
        weights, eps = self.weights, self.model.norm_eps
        guesses = []
        for _ in range(count):
            state = draft_step(weights, state, F.embedding(token, weights["embed"]), eps)
            token = self.logits(rms_norm(state, weights["norm"], eps)).argmax(-1)
            guesses.append(token)
        return torch.stack(guesses, 1)

    def _attention(
        self, layer: int, x: Tensor, batch: Batch, cos: Tensor, sin: Tensor, mask: Tensor
    ) -> Tensor:
        model, weights, name = self.model, self.weights, f"layers.{layer}."
        x = rms_norm(x, weights[name + "attention_norm"], model.norm_eps)
        heads = (-1, model.head_dim)
        if self.heads:
            query = rotate(F.linear(x, weights[name + "q"]).unflatten(-1, heads), cos, sin)
            key = rotate(F.linear(x, weights[name + "k"]).unflatten(-1, heads), cos, sin)
            value = F.linear(x, weights[name + "v"]).unflatten(-1, heads)
            keys, values = self.cache[layer]
            keys[batch.slots], values[batch.slots] = key, value
            key, value = (
                one[batch.context][:, :, self._kv_of_head].transpose(1, 2) for one in (keys, values)
            )
            mixed = F.scaled_dot_product_attention(query.transpose(1, 2), key, value, mask)
            out = F.linear(mixed.transpose(1, 2).flatten(-2), weights[name + "o"])
        else:
            out = torch.zeros_like(x)
        self.peers.all_reduce(out)
        return out

    def _engram(self, layer: int, x: Tensor, rows: Tensor) -> Tensor:
        weights, name, own = self.weights, f"layers.{layer}.engram.", self.model.row_format
        rows = rows[..., :: self.tables.heads_together, :]
        codes = rows[..., : own.code_bytes]
        scales = rows[..., self.tables.row_format.code_bytes :][..., : own.scale_bytes]
        found = from_fp8(codes, scales, self._codes, self._scales).flatten(-2)
        both = F.linear(found, weights[name + "kv"])
        self.peers.all_reduce(both)
        key, value = both.chunk(2, dim=-1)
        eps = self.model.norm_eps
        hidden = rms_norm(x, weights[name + "norm"], eps)
        return engram_gate(hidden, rms_norm(key, weights[name + "key_norm"], eps)) * value

    def _experts(self, layer: int, x: Tensor) -> Tensor:
        """The shared expert's columns and the whole experts of this rank."""
        model, weights, name = self.model, self.weights, f"layers.{layer}."
        x = rms_norm(x, weights[name + "expert_norm"], model.norm_eps)
        gate, up = F.linear(x, weights[name + "shared.up"]).chunk(2, dim=-1)
        out = F.linear(F.silu(gate) * up, weights[name + "shared.down"])
        chosen = route(F.linear(x, weights[name + "router"]), model.experts_per_token)
        if share := self._own_experts:
            mine = chosen.flatten(0, 1)[:, share[0] : share[-1] + 1]
            wide, narrow = self._fp4(name + "experts.up"), self._fp4(name + "experts.down")
            out = out + experts(x.flatten(0, 1), mine, wide, narrow).view_as(x)
        self.peers.all_reduce(out)
        return out

    def _fp4(self, name: str) -> Tensor:
        codes, exponents = self.weights[name], self.weights[name + ".scales"]
        return from_mxfp4(codes, exponents, self._pairs, self._scales)


def _share(count: int, peers: Collectives) -> list[int]:
    """This rank's part of `count` equal things, in order; the first ranks get one more."""
    return [int(one) for one in np.array_split(np.arange(count), peers.world)[peers.rank]]


def _spread(index: list[int], width: int) -> list[int]:
    return [one * width + k for one in index for k in range(width)]


def _load(
    folder: Path, model: ModelConfig, peers: Collectives, heads: list[int], kv_heads: list[int],
    device: torch.device,
) -> dict[str, Tensor]:  # fmt: skip
    """Read this rank's share of every tensor; what is not 8 bits wide becomes float32."""
    padded = -(-VOCAB // peers.world)
    q, kv = _spread(heads, model.head_dim), _spread(kv_heads, model.head_dim)
    shared = _share(model.shared_hidden, peers)
    experts = _share(model.experts, peers)
    hashes = list(range(model.engram_heads))[peers.rank :: peers.world]
    rules: dict[str, tuple[int, list[int]]] = {
        "q": (0, q), "k": (0, kv), "v": (0, kv), "o": (1, q),
        "shared.up": (0, shared + [one + model.shared_hidden for one in shared]),
        "shared.down": (1, shared),
        "experts.up": (0, experts), "experts.up.scales": (0, experts),
        "experts.down": (0, experts), "experts.down.scales": (0, experts),
        "engram.kv": (1, _spread(hashes, model.engram_dim)),
    }  # fmt: skip
    found = {}
    with safe_open(folder / "model.safetensors", "pt") as file:
        for name in file.keys():  # noqa: SIM118 - not a mapping
            if ".table" in name:
                continue
            tensor = file.get_tensor(name)
            rule = rules.get(name.split(".", 2)[2]) if name.startswith("layers.") else None
            if rule is not None:
                tensor = tensor.index_select(rule[0], torch.tensor(rule[1], dtype=torch.long))
            if name == "head":
                first = peers.rank * padded
                part = tensor[first : first + padded]
                tensor = F.pad(part, (0, 0, 0, padded - part.shape[0]))
            found[name] = tensor.to(device, None if tensor.dtype == torch.uint8 else torch.float32)
    return found
