# mypy: ignore-errors
"""Faults for a real engine, asked for from outside by control files; nothing of the engine is edited.

Loaded into every process of the engine: by vLLM as a general plugin, by SGLang's Python at start-up. It acts only when
SENTINEL_TEST_FAULTS names a folder, and only on a file named after its own process:

- `gil.PID` holding a number: native code keeps the interpreter lock for that many seconds;
- `open.PID`: the next forward pass opens `pipe` in that folder for reading, which blocks until somebody writes;
- `raise.PID`: the next forward pass raises;
- `slow.PID` holding a number: the next forward pass takes that many seconds longer.
"""

import ctypes
import os
import sys
import threading
from pathlib import Path

FOLDER = os.environ.get("SENTINEL_TEST_FAULTS", "")
POLL_S = 0.1


def register_vllm() -> None:
    """Entry point of vLLM's general plugins."""
    if not FOLDER or "engine_faults_watch" in {thread.name for thread in threading.enumerate()}:
        return
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    _wrap(GPUModelRunner, "execute_model")
    _watch_in_background(lambda: True)


def register_sglang() -> None:
    """Called at the interpreter's start; the forward pass is wrapped once SGLang has loaded its model runner."""
    if FOLDER and "resource_tracker" not in " ".join(sys.orig_argv):
        _watch_in_background(_wrap_sglang)


def _wrap_sglang() -> bool:
    module = sys.modules.get("sglang.srt.model_executor.model_runner")
    runner = getattr(module, "ModelRunner", None)
    if runner is None:
        return False
    _wrap(runner, "forward")
    return True


def _wrap(owner: type, name: str) -> None:
    inner = getattr(owner, name)

    def step(*arguments: object, **named: object) -> object:
        _fault_in_step()
        return inner(*arguments, **named)

    setattr(owner, name, step)


def _fault_in_step() -> None:
    if _taken("open") is not None:
        with open(f"{FOLDER}/pipe", "rb") as pipe:
            pipe.read(1)
    if (seconds := _taken("slow")) is not None:
        threading.Event().wait(float(seconds))
    if _taken("raise") is not None:
        raise RuntimeError("a fault was asked for: this step raises")


def _watch_in_background(prepare: "object") -> None:
    threading.Thread(target=_watch, args=(prepare,), name="engine_faults_watch", daemon=True).start()


def _watch(prepare) -> None:
    prepared = False
    while not threading.Event().wait(POLL_S):
        prepared = prepared or prepare()
        if (seconds := _taken("gil")) is not None:
            # A call through PyDLL keeps the interpreter lock.
            ctypes.PyDLL(None).sleep(int(seconds))


def _taken(fault: str) -> str | None:
    """Content of this process's control file for a fault, which is removed; None when there is none."""
    path = Path(FOLDER, f"{fault}.{os.getpid()}")
    if not path.exists():
        return None
    content = path.read_text()
    path.unlink()
    return content
