"""Ways to freeze or slow a rank from inside, for real. Each is what its name says; none is simulated."""

import ctypes
import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

FOR_EVER_S = 3600


def deadlock(folder: Path) -> None:
    """The main thread waits for a lock whose holder waits for ever."""
    del folder
    lock, held = threading.Lock(), threading.Event()

    def hold_lock() -> None:
        with lock:
            held.set()
            threading.Event().wait(FOR_EVER_S)

    threading.Thread(target=hold_lock, name="grammar", daemon=True).start()
    held.wait()
    lock.acquire()


def gil(folder: Path) -> None:
    """Native code sleeps and keeps the interpreter lock: no Python thread of this process runs, not even a watchdog."""
    del folder
    ctypes.PyDLL(None).sleep(FOR_EVER_S)


def fifo(folder: Path) -> None:
    """A read-only open of a FIFO that nobody writes: the step never comes back from the kernel."""
    path = folder / "never.fifo"
    if not path.exists():
        os.mkfifo(path)
    os.open(path, os.O_RDONLY)


def native_loop(folder: Path) -> None:
    """A native function computes for ever at full CPU, without the interpreter lock."""
    del folder
    while True:
        hashlib.pbkdf2_hmac("sha256", b"busy", b"loop", 200_000_000)


def compile_kernels(folder: Path) -> None:
    """Compiler children work while this rank waits for them, as a run-time compile does."""
    compiler = folder / "ptxas"
    if not compiler.exists():
        compiler.symlink_to(sys.executable)
    job = "import hashlib\nwhile True: hashlib.sha256(b'kernel').digest()"
    with subprocess.Popen([str(compiler), "-c", job, "--gpu-name", "sm_90a"]) as child:
        (folder / "compiler.pid").write_text(str(child.pid))
        child.wait()


def memory(folder: Path) -> None:
    """Take memory until the kernel's killer comes (only inside a limited cgroup)."""
    del folder
    hoard: list[bytearray] = []
    while True:
        hoard.append(bytearray(os.urandom(1 << 20) * 16))


def raise_exception(folder: Path) -> None:
    """The step raises."""
    del folder
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


FAULTS: dict[str, Callable[[Path], None]] = {
    "deadlock": deadlock,
    "gil": gil,
    "fifo": fifo,
    "native_loop": native_loop,
    "compile": compile_kernels,
    "memory": memory,
    "exception": raise_exception,
}
