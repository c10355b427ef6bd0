"""The engine on real GPUs: every hand-off inside graphs, and eager steps.

    python engine/tests/gpu_smoke.py OUT --world 2

For each case it starts an engine over that many GPUs, waits for its first token, serves one and
then eight requests at once, switches the row store to RAM and back, compares greedy text with the
first case, reads the rings, and stops it. It prints a table and writes results and logs to OUT.
Exit status 1 when a case did not come up, did not replay its graphs, or did not stop cleanly.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from sentinel_engine.collectives import read_ring
from sentinel_engine.config import TINY_MODEL, EngineConfig, dump_config
from sentinel_engine.stage import stage

READY_S, ANSWER_S = 45.0, 30.0
PROMPTS = ("Return a list of ", "The file is ", "def main(", "Raise an error if ")
CASES = (("callback", True), ("prestage", True), ("memop", True), ("callback", False))
"""Hand-off, and whether graphs are captured."""
COLUMNS = ("case", "ready_s", "tokens_per_s_1", "tokens_per_s_8", "accept_rate", "same_text",
           "failed")  # fmt: skip


def call(config: EngineConfig, path: str, body: Any = None) -> Any:
    """GET, or POST with a body; the JSON answer."""
    headers = {"authorization": f"Bearer {config.admin_token}", "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{config.port}{path}", data, headers)
    with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
        text = answer.read()
        return json.loads(text) if text[:1] == b"{" else text.decode()


def complete(config: EngineConfig, prompt: str, tokens: int) -> str:
    """Greedy text of a fixed length."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    text: str = call(config, "/v1/completions", body)["choices"][0]["text"]
    return text


def rate(config: EngineConfig, clients: int, tokens: int) -> float:
    """Tokens per second of so many requests at once."""
    began = time.monotonic()
    with ThreadPoolExecutor(clients) as pool:
        jobs = [pool.submit(complete, config, PROMPTS[k % 4], tokens) for k in range(clients)]
        for job in jobs:
            job.result()
    return clients * tokens / (time.monotonic() - began)


def metric(config: EngineConfig, name: str) -> float:
    """A number of `/metrics`."""
    lines = call(config, "/metrics").splitlines()
    return sum(float(one.split()[-1]) for one in lines if one.startswith(name))


def run_case(config: EngineConfig, out: Path, name: str) -> dict[str, Any]:
    """Start, measure, stop."""
    path = out / f"{name}.json"
    path.write_text(json.dumps(dump_config(config)))
    ranks = ",".join(str(rank) for rank in range(config.world))
    command = [sys.executable, "-m", "sentinel_engine.worker", "--config", str(path), "--rank",
               ranks, "--world", str(config.world), "--master", "127.0.0.1:29533"]  # fmt: skip
    result: dict[str, Any] = {"case": name, "world": config.world}
    began = time.monotonic()
    process = subprocess.Popen(command)
    try:
        pause = threading.Event()
        while True:
            try:
                call(config, "/health_generate")
                break
            except (urllib.error.URLError, OSError):
                if process.poll() is not None or time.monotonic() > began + READY_S:
                    return result | {"failed": "did not come up; see its log"}
                pause.wait(0.5)
        result["ready_s"] = round(time.monotonic() - began, 1)
        rate(config, 8, 32)
        result["texts"] = [complete(config, prompt, 64) for prompt in PROMPTS]
        result["tokens_per_s_1"] = round(rate(config, 1, 512), 1)
        result["tokens_per_s_8"] = round(rate(config, 8, 512), 1)
        result["modes"] = [
            call(config, "/rowstore/mode", {"mode": mode})["modes"] for mode in ("ram", "nvme")
        ]
        drafted = metric(config, "sentinel_engine_drafted_total")
        accepted = metric(config, "sentinel_engine_accepted_drafts_total")
        result["accept_rate"] = round(accepted / drafted, 3)
        rings = [read_ring(Path(config.runtime_dir) / f"rank{k}.ring") for k in range(config.world)]
        result["counters"] = [ring.counters for ring in rings]
        process.terminate()
        result["exit"] = process.wait(ANSWER_S)
        graphs = config.cuda_graphs and config.device == "cuda"
        if graphs and not all(ring.counters["replays"] for ring in rings):
            result["failed"] = "no graph was replayed"
        if result["exit"]:
            result["failed"] = f"exit status {result['exit']} after SIGTERM"
    except (OSError, subprocess.TimeoutExpired) as error:
        result["failed"] = f"{type(error).__name__}: {error}"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return result


def main() -> int:
    """All cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    results, first = [], None
    for number, (handoff, graphs) in enumerate(CASES):
        name = f"world{given.world}.{handoff}.{'graphs' if graphs else 'eager'}"
        config = EngineConfig(
            rows="/tmp/engine-rows", runtime_dir=f"/tmp/engine-run/{name}", model=str(TINY_MODEL),
            world=given.world, device=given.device, handoff=handoff, cuda_graphs=graphs,
            port=30150 + number, admin_token="smoke", watchdog_timeout_s=60,
            log_file=str(given.out / f"{name}.log"), kv_pages=1024,
        )  # fmt: skip
        stage(config, tuple(range(given.world)))
        result = run_case(config, given.out, name)
        texts = result.pop("texts", None)
        first = first or texts
        result["same_text"] = texts == first if texts else None
        results.append(result)
        print(json.dumps(result), flush=True)
        with (given.out / f"results.world{given.world}.jsonl").open("a") as file:
            file.write(json.dumps(result) + "\n")
    for one in [dict(zip(COLUMNS, COLUMNS, strict=True)), *results]:
        print("| " + " | ".join(str(one.get(column, "")) for column in COLUMNS) + " |")
    return int(any("failed" in one for one in results))


if __name__ == "__main__":
    raise SystemExit(main())
