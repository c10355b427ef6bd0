"""A real engine, unpatched: started as an operator would start it, with a small random model on the CPU."""

import contextlib
import http.client
import os
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sentinel.testing.ports import free_port
from tests.engines.load import complete
from tests.engines.processes import end_tree, family, session, signal_one, title, wait_until

HERE = Path(__file__).resolve().parent
Kind = Literal["vllm", "sglang"]
BOOT_S = 420.0
STOP_S = 30.0
SLOW_START = {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"}


def installed(kind: Kind) -> Path | None:
    """The virtual environment of the present recipe; None when it is not installed."""
    script = HERE / f"install_{kind}.sh"
    asked = subprocess.run([script], env={**os.environ, "WHERE_ONLY": "1"}, capture_output=True, text=True, check=True)
    venv = Path(asked.stdout.strip())
    return venv if (venv / "complete").is_file() else None


@dataclass(slots=True)
class RealEngine:
    """One server. `folder` holds its log (`engine.log`) and the control files of faults (`faults/`)."""

    kind: Kind
    ranks: int
    folder: Path
    arguments: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    _root: "subprocess.Popen[bytes] | None" = None

    @property
    def log(self) -> Path:
        """Where the engine's output goes."""
        return self.folder / "engine.log"

    @property
    def pid(self) -> int:
        """Pid of the root process."""
        assert self._root is not None
        return self._root.pid

    def start(self) -> "RealEngine":
        """Start it and wait until it has served one request."""
        venv = installed(self.kind)
        assert venv is not None, f"run tests/engines/install_{self.kind}.sh first"
        faults = self.folder / "faults"
        faults.mkdir(parents=True, exist_ok=True)
        if not (faults / "pipe").exists():
            os.mkfifo(faults / "pipe")
        plain = {name: value for name, value in os.environ.items() if name not in SLOW_START}
        path = f"{venv / 'bin'}:{plain.get('PATH', '')}"
        environ = {**plain, "PATH": path, **_environ(self.kind, self.ranks, faults), **self.settings}
        argv = [*_argv(self.kind, self.ranks, venv, self.port), *self.arguments]
        with self.log.open("ab") as log:
            self._root = subprocess.Popen(argv, stdout=log, stderr=log, env=environ, start_new_session=True)
        wait_until(self._serves, BOOT_S, f"{self.kind} starts", self.log)
        return self

    def alive(self) -> bool:
        """Whether the root process runs."""
        return self._root is not None and self._root.poll() is None

    def pid_of(self, name: str) -> int:
        """Pid of the process whose title begins so."""
        found = [process.pid for process in family(self.pid) if title(process).startswith(name)]
        assert len(found) == 1, f"{len(found)} processes are called {name}: {[title(p) for p in family(self.pid)]}"
        return found[0]

    def fault(self, name: str, pid: int, content: str = "") -> None:
        """Ask for a fault inside a process."""
        staged = self.folder / "staged"
        staged.write_text(content)
        staged.rename(self.folder / "faults" / f"{name}.{pid}")

    def release_pipe(self) -> None:
        """Let a reader of the pipe go on."""
        with contextlib.suppress(OSError):
            os.close(os.open(self.folder / "faults" / "pipe", os.O_WRONLY | os.O_NONBLOCK))

    def text_since(self, offset: int) -> str:
        """What the log says from a position on."""
        return self.log.read_bytes()[offset:].decode(errors="replace")

    def shut_down(self) -> None:
        """End it as an operator does: SIGTERM to the root, and wait."""
        members = session(self.pid)
        signal_one(self.pid, signal.SIGTERM)
        assert self._root is not None
        try:
            self._root.wait(STOP_S)
        finally:
            end_tree([member for member in members if member.is_running()])

    def kill(self) -> None:
        """End everything of it now."""
        if self._root is not None:
            end_tree(session(self._root.pid))
            self._root.wait()

    def _serves(self) -> bool:
        assert self.alive(), self.log.read_text(errors="replace")[-4000:]
        return _health(self.port) == 200


def _health(port: int) -> int | None:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        client.request("GET", "/health")
        return client.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        client.close()


def _environ(kind: Kind, ranks: int, faults: Path) -> dict[str, str]:
    common = {"HF_HUB_OFFLINE": "1", "DO_NOT_TRACK": "1", "OMP_NUM_THREADS": "1", "SENTINEL_TEST_FAULTS": str(faults)}
    common["PYTHONPATH"] = str(HERE / "faults")
    cores = {1: "", 2: "0|1"}[ranks]
    if kind == "vllm":
        common |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_HOST_IP": "127.0.0.1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        return common | ({"VLLM_CPU_OMP_THREADS_BIND": cores} if cores else {})
    common |= {"PYTHONPATH": f"{HERE / 'stand_ins'}:{HERE / 'faults'}", "SGLANG_USE_CPU_ENGINE": "1"}
    return common | ({"SGLANG_CPU_OMP_THREADS_BIND": cores} if cores else {})


def _argv(kind: Kind, ranks: int, venv: Path, port: int) -> list[str]:
    model = str(venv / "model")
    if kind == "vllm":
        argv = [str(venv / "bin" / "vllm"), "serve", model, "--served-model-name", "small", "--enforce-eager"]
        argv += ["--dtype", "bfloat16", "--max-model-len", "4096", "--max-num-seqs", "16"]
        return [*argv, "--tensor-parallel-size", str(ranks), "--host", "127.0.0.1", "--port", str(port)]
    argv = [str(venv / "bin" / "python"), "-m", "sglang.launch_server", "--model-path", model]
    argv += ["--served-model-name", "small", "--device", "cpu", "--attention-backend", "torch_native"]
    argv += ["--sampling-backend", "pytorch", "--mem-fraction-static", "0.1", "--max-total-tokens", "8192"]
    argv += ["--disable-cuda-graph", "--disable-overlap-schedule"]
    return [*argv, "--tp", str(ranks), "--host", "127.0.0.1", "--port", str(port)]


def warm(engine: RealEngine) -> None:
    """The first request after a start takes seconds; have it behind us."""
    assert complete(engine.port, 8) > 0
