"""One rank: the loop that learns of requests, runs steps with its peers, and tells the results.

Rank 0 hears the front end and broadcasts what it heard; all ranks then do the same. After every
step they agree whether all gathers succeeded: if one did not, the step never happened for any of
them, its requests get a retriable error, and the engine goes on.
"""

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .collectives import Collectives, Ring
from .config import EngineConfig, slice_path
from .faults import Faults
from .handoff import CpuFeed, CudaFeed
from .inbox import Inbox
from .logs import StatsPage, decode_line, prefill_line, say
from .model import Model
from .modelfile import EOS, NgramHash, Tables, load_model_config
from .rowstore import Store, StoreRefused
from .rowstore.telemetry_layout import MODES
from .runner import Runner, Work
from .sampling import FINISH, RUNNING, Sampler
from .scheduler import Request, Scheduler

CPU = torch.device("cpu")
IDLE_S = 0.5
"""How long rank 0 waits for a request before it broadcasts that there is none."""
SWITCHING_S = 0.02
"""The same while the store switches its mode and nothing runs."""


class Engine:
    """One rank with its store, model and share of the work."""

    def __init__(self, config: EngineConfig, rank: int, inbox: Inbox | None) -> None:
        self.config, self.rank, self.inbox = config, rank, inbox
        self.tag = f"TP{rank}"
        self.stop_asked = False
        self._stop_by_s = 0.0
        self._stopped = False
        self._switch: int | None = None
        folder = Path(config.runtime_dir)
        cuda = config.device == "cuda"
        self.device = torch.device("cuda", torch.cuda.current_device()) if cuda else CPU
        say(self.tag, "Init torch distributed begin.")
        began = time.monotonic()
        self.ring = Ring(folder / f"rank{rank}.ring", rank, config.world)
        self.peers = Collectives(self.ring, rank, config.world, self.device)
        say(self.tag, f"Init torch distributed ends. elapsed={time.monotonic() - began:.2f} s")
        self._load(folder)
        self.scheduler, self.sampler = Scheduler(config), Sampler(config.seed)
        self.stats = StatsPage(folder / "stats") if rank == 0 else None
        self._since = dict.fromkeys(
            ("steps", "rows", "decode_tokens", "accepted_drafts", "drafted"), 0
        )
        self._lines_at = self._prefill_at = time.monotonic()

    def _load(self, folder: Path) -> None:
        config, rank = self.config, self.rank
        began = time.monotonic()
        say(self.tag, "Load weight begin.")
        model = load_model_config(Path(config.model))
        slots = config.kv_pages * config.page_tokens
        tables = Tables(model, config.geometry_rows)
        loaded = Model(
            tables, Path(config.model), self.peers, device=self.device, cache_slots=slots
        )
        hashes = [
            NgramHash(tables, layer, rank=rank, world=config.world)
            for layer in model.engram_layers
        ]
        positions = max(config.chunk_tokens, max(config.batch_shapes) * (config.draft_tokens + 1))
        # A lane for each layer, and a spare one for the lock holder of drills.
        lanes = len(model.engram_layers) + 1
        self.store = Store(
            *(slice_path(config, layer, rank) for layer in model.engram_layers),
            inject=config.faults_allowed,
            **{
                "mode": config.rows_mode, "lanes": lanes, "rank": rank,
                "world": config.world, "lane_rows": positions * hashes[0].heads,
                "telemetry": folder / f"rank{rank}.page", "control": folder / f"rank{rank}.sock",
                **config.rows_settings,
            },
        )  # fmt: skip
        shape = (self.store, model.engram_layers, hashes[0].heads, positions, self.device)
        on_gpu = self.device.type == "cuda"
        feed = CudaFeed(*shape, config.handoff) if on_gpu else CpuFeed(*shape)
        self.runner = Runner(config, loaded, feed, hashes)
        self.faults = Faults(self.tag, self.store, self.runner)
        took = time.monotonic() - began
        say(self.tag, f"Load weight end. elapsed={took:.2f} s, type={model.name}, quant=mxfp4.")
        if on_gpu and config.cuda_graphs:
            say(self.tag, "Capture cuda graph begin.")
            shapes = self.runner.capture()
            say(self.tag, f"Capture cuda graph end. bs={shapes}")
        self.peers.barrier()

    def busy(self) -> str:
        """What runs now, for the watchdog; empty when nothing does."""
        rids = [one.rid for one in self.scheduler.running]
        return f"Batch(batch_size()={len(rids)}, reqs={rids})" if rids else ""

    def event_loop(self) -> None:
        """Serve until the stop that rank 0 broadcasts."""
        say(self.tag, f"max_total_num_tokens={self.config.kv_pages * self.config.page_tokens}, "
                      f"chunked_prefill_size={self.config.chunk_tokens}, "
                      f"max_running_requests={self.config.max_running}, "
                      f"context_len={self.config.context_tokens}")  # fmt: skip
        while not self._stopped:
            for event in self.broadcast_requests():
                self._handle(event)
            self._admit()
            self.run_batch()
            self._report_switch()
        self.peers.barrier()
        self.runner.release()
        self.peers.close()
        self.store.close()

    def broadcast_requests(self) -> list[dict[str, Any]]:
        """What rank 0 has heard since the last step, on every rank."""
        body = b""
        if self.inbox is not None:
            pause = IDLE_S if self._switch is None else SWITCHING_S
            events = self.inbox.take(0.0 if self.scheduler.running else pause)
            if self.stop_asked:
                events += self._stop_events()
            body = json.dumps(events).encode() if events else b""
        size = torch.tensor([len(body)])
        self.peers.broadcast(size)
        if not int(size):
            return []
        content = torch.zeros(int(size), dtype=torch.uint8)
        if body:
            content[:] = torch.frombuffer(bytearray(body), dtype=torch.uint8)
        self.peers.broadcast(content)
        found: list[dict[str, Any]] = json.loads(content.numpy().tobytes())
        return found

    def _stop_events(self) -> list[dict[str, Any]]:
        now = time.monotonic()
        if not self._stop_by_s:
            self._stop_by_s = now + self.config.stop_grace_s
            say(self.tag, "Gracefully exiting... Remaining number of requests "
                          f"{len(self.scheduler.running)}.")  # fmt: skip
        left = self.scheduler.running or self.scheduler.waiting
        return [{"do": "stop"}] if not left or now > self._stop_by_s else []

    def _handle(self, event: dict[str, Any]) -> None:
        what = event["do"]
        if what == "submit":
            prompt, most = event["tokens"], event["max_tokens"]
            self.scheduler.add(Request(event["rid"], prompt, len(prompt), most, event["options"]))
        elif what == "abort":
            request = self.scheduler.find(event["rid"])
            if request is not None:
                self._forget(request)
        elif what == "mode":
            self._begin_switch(event)
        elif what == "fault":
            if event["spec"].get("rank", 0) == self.rank or event["spec"]["kind"] == "clear":
                self.faults.apply(event["spec"])
            self._tell({"id": event["id"], "reply": {"ok": True}})
        else:
            self._fail([*self.scheduler.running, *self.scheduler.waiting], "the engine is stopping")
            self._stopped = True

    def _admit(self) -> None:
        for request in self.scheduler.admit():
            self.runner.prefetch(request)
            if self.rank == 0:
                self.sampler.admit(request)

    def run_batch(self) -> None:
        """One prefill chunk or one decode step, if there is anything to run."""
        request = self.scheduler.next_prefill()
        if request is not None:
            self._prefill(request)
        elif batch := self.scheduler.decoding():
            self._decode(batch)
        if self.stats is not None:
            self.stats.put("num_running_reqs", len(self.scheduler.running))
            self.stats.put("num_queue_reqs", len(self.scheduler.waiting))
            self.stats.put("num_used_tokens", self.scheduler.used_tokens)
            self.stats.put("token_usage", self.scheduler.usage)
            self.stats.put("forwards", self.ring.count("forwards"))

    def _prefill(self, request: Request) -> None:
        chunk = request.tokens[request.done : request.done + self.config.chunk_tokens]
        work = Work(request, request.done, chunk)
        logits, hidden = self.runner.forward([work], len(chunk), last_only=True)
        if not self._all_gathered([request]):
            return
        request.done += len(chunk)
        if self.stats is not None:
            self._log_prefill(len(chunk))
        if request.done == request.prompt:
            self._commit([work], [[]], logits, hidden)

    def _decode(self, batch: list[Request]) -> None:
        drafts = self.runner.draft(batch)
        works = [
            Work(one, one.done, [one.tokens[-1], *guess])
            for one, guess in zip(batch, drafts, strict=True)
        ]
        logits, hidden = self.runner.forward(works, self.config.draft_tokens + 1)
        if not self._all_gathered(batch):
            return
        before = sum(one.produced for one in batch)
        self._commit(works, drafts, logits, hidden)
        if self.stats is not None:
            made = sum(one.produced for one in batch) - before
            self._log_decode(len(batch), made, sum(len(one) for one in drafts))

    def _all_gathered(self, batch: list[Request]) -> bool:
        """Agree with all ranks that no gather of this step failed; else fail its requests."""
        status = self.runner.feed.outcome()
        code = torch.tensor([0 if status == "ok" else self.rank + 1])
        self.peers.all_reduce(code, group=0, largest=True)
        if status != "ok":
            say(self.tag, f"Row store gather failed with status {status}")
        if not int(code):
            return True
        reason = f"rows could not be read on rank {int(code) - 1}; try again"
        say(self.tag, f"Batch failed: {reason}. #failed-req: {len(batch)}")
        if self.stats is not None:
            self.stats.put("failed_batches", self.stats.get("failed_batches") + 1)
        self._fail(batch, reason)
        return False

    def _commit(
        self, works: list[Work], drafts: list[list[int]], logits: Tensor, hidden: Tensor
    ) -> None:
        """Choose tokens on rank 0, learn them on all, and roll back what was not accepted."""
        width = self.config.draft_tokens + 1
        chosen = torch.zeros((len(works), 2 + width), dtype=torch.int64)
        if self.rank == 0:
            values = logits.float().cpu().numpy()
            for row, (work, guess) in enumerate(zip(works, drafts, strict=True)):
                tokens, finish = self.sampler.choose(work.request, values[row], guess)
                chosen[row, : 2 + len(tokens)] = torch.tensor([len(tokens), finish, *tokens])
        self.peers.broadcast(chosen)
        for row, work in enumerate(works):
            count, finish, *padded = chosen[row].tolist()
            request, tokens = work.request, padded[:count]
            request.done = work.start + len(work.tokens) - (len(drafts[row]) - (count - 1))
            request.tokens += tokens
            request.state = hidden[row, count - 1].clone()
            self._tell({"rid": request.rid, "tokens": [one for one in tokens if one < EOS]})
            if finish != RUNNING:
                usage = {"prompt_tokens": request.prompt, "completion_tokens": request.produced}
                self._tell({"rid": request.rid, "finish": FINISH[finish], "usage": usage})
                self._forget(request)

    def _fail(self, requests: list[Request], reason: str) -> None:
        for request in requests:
            self._tell({"rid": request.rid, "error": reason, "retriable": True})
            self._forget(request)

    def _forget(self, request: Request) -> None:
        self.scheduler.drop(request)
        self.sampler.forget(request)

    def _tell(self, message: dict[str, Any]) -> None:
        if self.inbox is not None:
            self.inbox.send(message)

    def _begin_switch(self, event: dict[str, Any]) -> None:
        self._switch = event["id"]
        if event["target"]:
            try:
                self.store.set_mode(event["target"])
            except StoreRefused as error:
                say(self.tag, f"Row store mode switch refused: {error}")

    def _report_switch(self) -> None:
        """Answer a question about the store's mode once no rank is switching any more."""
        if self._switch is None:
            return
        state = self.store.switch_state()
        mine = torch.tensor([int(state.status == "pending"), MODES.index(state.mode)])
        ranks = self.peers.all_gather(mine, group=0).tolist()
        if any(pending for pending, _ in ranks):
            return
        reply = {"modes": [MODES[mode] for _, mode in ranks], "status": state.status,
                 "reason": state.reason}  # fmt: skip
        self._tell({"id": self._switch, "reply": reply})
        self._switch = None

    def _log_prefill(self, new: int) -> None:
        now, stats = time.monotonic(), self.stats
        assert stats is not None
        stats.put("prefill_tokens", stats.get("prefill_tokens") + new)
        rate = new / max(now - self._prefill_at, 1e-6)
        self._prefill_at = now
        scheduler = self.scheduler
        say(self.tag, prefill_line(
            new, scheduler.usage, len(scheduler.running), len(scheduler.waiting), rate
        ))  # fmt: skip

    def _log_decode(self, rows: int, made: int, drafted: int) -> None:
        stats, since, now = self.stats, self._since, time.monotonic()
        assert stats is not None
        grown = {"decode_tokens": made, "accepted_drafts": made - rows, "drafted": drafted}
        for name, by in grown.items():
            stats.put(name, stats.get(name) + by)
            since[name] += by
        since["steps"] += 1
        since["rows"] += rows
        self._prefill_at = now
        if since["steps"] < self.config.decode_log_interval:
            return
        rate = since["decode_tokens"] / max(now - self._lines_at, 1e-6)
        length = since["decode_tokens"] / since["rows"]
        share = since["accepted_drafts"] / max(since["drafted"], 1)
        stats.put("gen_throughput", rate)
        stats.put("spec_accept_length", length)
        stats.put("spec_accept_rate", share)
        stats.put("is_cuda_graph", float(self.runner.used_graph))
        scheduler = self.scheduler
        say(self.tag, decode_line(
            rows, scheduler.used_tokens, scheduler.usage,
            (length, share) if self.config.draft_tokens else None, self.runner.used_graph, rate,
            len(scheduler.waiting),
        ))  # fmt: skip
        self._lines_at = now
        self._since = dict.fromkeys(since, 0)
