"""The ranks of one node and their supervisor.

    python -m sentinel_engine.worker --config FILE --rank 0,1 --world 2 --master HOST:PORT

starts a supervisor that runs each named rank as `--role rank`, and next to rank 0 the front end as
`--role frontend`. The supervisor's command line states what monitoring wants to know (watchdog,
address, folder). SIGQUIT, which a rank's watchdog sends, and a rank that dies kill the tree with
`EXIT_KILLED`; SIGTERM drains and ends with 0, or with `EXIT_FORCED` when ranks do not end in time.
"""

import argparse
import faulthandler
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from types import FrameType

from .config import EXIT_KILLED, BadConfig, EngineConfig, load_config, slice_path
from .logs import say
from .watchdog import Watchdog, die_with_parent

VERSION = "0.1.0"
EXIT_FORCED = 143
EXIT_USAGE = 2
FORCE_AFTER_S = 5.0
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


def parse(argv: list[str]) -> argparse.Namespace:
    """The command line of supervisor, rank and front end."""
    parser = argparse.ArgumentParser(prog="sentinel_engine.worker", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--rank", required=True, help="ranks of this node, with commas")
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--master", required=True, help="HOST:PORT where rank 0 listens")
    parser.add_argument("--role", choices=("rank", "launcher"))
    for stated in ("--watchdog-timeout", "--host", "--port", "--runtime-dir"):
        parser.add_argument(stated, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def settings(given: argparse.Namespace) -> EngineConfig:
    """The file's settings with what the command line says about the world."""
    host, _, port = given.master.rpartition(":")
    if not host or not port.isdecimal():
        raise BadConfig(f"--master {given.master} is not HOST:PORT")
    config = load_config(given.config)
    return replace(config, world=given.world, master_host=host, master_port=int(port))


def main() -> None:
    """Be what the command line says."""
    given = parse(sys.argv[1:])
    try:
        config = settings(given)
        ranks = [int(one) for one in given.rank.split(",")]
        if not all(0 <= one < config.world for one in ranks):
            raise BadConfig(f"--rank {given.rank} is outside a world of {config.world}")
    except ValueError as error:
        print(f"sentinel_engine.worker: {error}", file=sys.stderr)
        raise SystemExit(EXIT_USAGE) from error
    if given.role == "rank":
        raise SystemExit(run_rank(config, ranks[0]))
    if given.runtime_dir is None:
        stated = {"--role": "launcher", "--watchdog-timeout": f"{config.watchdog_timeout_s:g}",
                  "--host": config.host, "--port": str(config.port),
                  "--runtime-dir": config.runtime_dir}  # fmt: skip
        words = [word for pair in stated.items() for word in pair]
        module = [sys.executable, "-m", "sentinel_engine.worker"]
        os.execv(sys.executable, [*module, *sys.argv[1:], *words])
    raise SystemExit(Supervisor(config, ranks, given).run())


def run_rank(config: EngineConfig, rank: int) -> int:
    """One rank, until the engine stops; 1 after an exception."""
    die_with_parent()
    faulthandler.enable()
    # torch and the engine are imported here: the supervisor needs neither.
    import torch

    from .engine import Engine
    from .inbox import Inbox

    torch.set_num_threads(1)
    if config.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    try:
        inbox = Inbox(Path(config.runtime_dir) / "frontend.sock") if rank == 0 else None
        engine = Engine(config, rank, inbox)

        def stop(number: int, frame: FrameType | None) -> None:
            del number, frame
            engine.stop_asked = True
            if rank:
                say(engine.tag, "SIGTERM received; waiting for the rank-0 ShutdownReq broadcast")

        signal.signal(signal.SIGTERM, stop)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        for timeout_s, soft in (
            (config.soft_watchdog_timeout_s, True), (config.watchdog_timeout_s, False)
        ):  # fmt: skip
            if timeout_s > 0:
                Watchdog(engine.tag, timeout_s, soft=soft, busy=engine.busy,
                         progress=lambda: engine.ring.count("forwards")).start()  # fmt: skip
        engine.event_loop()
    except Exception:
        say(f"TP{rank}", f"Scheduler hit an exception: {traceback.format_exc()}")
        os.kill(os.getppid(), signal.SIGQUIT)
        return 1
    return 0


class Supervisor:
    """Starts the processes of a node and ends them together."""

    def __init__(self, config: EngineConfig, ranks: list[int], given: argparse.Namespace) -> None:
        self.config, self.ranks, self.given = config, ranks, given
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._force_at_s: float | None = None

    def run(self) -> int:
        """Serve until stopped or broken; returns the exit status."""
        config = self.config
        Path(config.runtime_dir).mkdir(parents=True, exist_ok=True)
        if config.log_file:
            log = os.open(config.log_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
            os.dup2(log, 1)
            os.dup2(log, 2)
        say("", f"sentinel-engine version={VERSION} args=(model_path='{config.model}', "
                f"tp_size={config.world}, watchdog_timeout={config.watchdog_timeout_s:g}, "
                f"decode_log_interval={config.decode_log_interval}, "
                f"rows_mode='{config.rows_mode}', device='{config.device}', "
                f"host='{config.host}', port={config.port})")  # fmt: skip
        # Before any library starts a thread, which would take signals with their default action.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        if problem := self._slices():
            say("", problem)
            return EXIT_USAGE
        for local, rank in enumerate(self.ranks):
            self._start_rank(local, rank)
        if 0 in self.ranks:
            argv = ["-m", "sentinel_engine.api", "--role", "frontend", "--config"]
            self._children["frontend"] = subprocess.Popen(
                [sys.executable, *argv, str(self.given.config)]
            )
        return self._watch()

    def _slices(self) -> str:
        from .modelfile import load_model_config
        from .stage import mismatch, model_digest

        folder = Path(self.config.model)
        try:
            layers, digest = load_model_config(folder).engram_layers, model_digest(folder)
        except (OSError, ValueError) as error:
            return str(error)
        for layer in layers:
            for rank in self.ranks:
                if problem := mismatch(slice_path(self.config, layer, rank), digest):
                    return f"{problem}; write it with `{self.config.stage_command}`"
        return ""

    def _start_rank(self, local: int, rank: int) -> None:
        config, given = self.config, self.given
        argv = [sys.executable, "-m", "sentinel_engine.worker", "--role", "rank"]
        argv += ["--rank", str(rank), "--world", str(config.world), "--master", given.master]
        environment = os.environ | {
            "MASTER_ADDR": config.master_host, "MASTER_PORT": str(config.master_port),
            "LOCAL_RANK": str(local), "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        if config.interface:
            environment["GLOO_SOCKET_IFNAME"] = environment["NCCL_SOCKET_IFNAME"] = config.interface
        self._children[f"scheduler_{rank}"] = subprocess.Popen(
            [*argv, "--config", str(given.config)], env=environment
        )

    def _watch(self) -> int:
        while True:
            told = signal.sigtimedwait(SIGNALS, 1.0)
            number = 0 if told is None else told.si_signo
            if number == signal.SIGQUIT:
                say("", f"SIGQUIT received. signum={number}, frame=None. "
                        "It usually means one child failed.")  # fmt: skip
                return self._kill(EXIT_KILLED)
            if number in (signal.SIGTERM, signal.SIGINT) and self._force_at_s is None:
                self._force_at_s = time.monotonic() + self.config.stop_grace_s + FORCE_AFTER_S
                say("", f"SIGTERM received. signum={number} Draining requests and shutting down...")
                for name, child in self._children.items():
                    if name != "frontend":
                        child.terminate()
            for name, child in list(self._children.items()):
                status = child.poll()
                if status is None:
                    continue
                del self._children[name]
                if status or name == "frontend":
                    say("", f"Subprocess {name} (pid={child.pid}) crashed with exit code {status}. "
                            "Triggering SIGQUIT for cleanup...")  # fmt: skip
                    return self._kill(EXIT_KILLED)
            if self._children.keys() <= {"frontend"}:
                return self._kill(0)
            if self._force_at_s is not None and time.monotonic() > self._force_at_s:
                say("", "Ranks did not end in time. Force exiting.")
                return self._kill(EXIT_FORCED)

    def _kill(self, status: int) -> int:
        """End what is left, the front end politely when all went well."""
        if status:
            say("", f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True")
        for child in self._children.values():
            child.send_signal(signal.SIGKILL if status else signal.SIGTERM)
        for child in self._children.values():
            try:
                child.wait(FORCE_AFTER_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        return status


if __name__ == "__main__":
    main()
