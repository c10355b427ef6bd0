"""A tensor-parallel decode loop on real GPUs over NCCL, to be frozen in real ways: the rehearsal engine's GPU twin.

Per step: one CUDA graph (a host callback that reads a file under a mutex, matrix products, one captured all-reduce),
then eager all-gathers and one broadcast on a second communicator. Rank 0 prints SGLang's decode line. Needs torch with
NCCL and a C compiler; everything else is the standard library, so that it runs where Sentinel is not installed.
"""

import argparse
import ctypes
import os
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import torch
import torch.distributed as dist

CALLBACK = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
static pthread_mutex_t shard = PTHREAD_MUTEX_INITIALIZER;
static int fd = -1;
static useconds_t extra_us = 0;
int store_open(const char *path) { fd = open(path, O_RDONLY); return fd; }
void store_slow(unsigned us) { extra_us = us; }
static void *hold(void *unused) { (void)unused; pthread_mutex_lock(&shard); for (;;) pause(); return 0; }
void store_hold(void) { pthread_t t; pthread_create(&t, 0, hold, 0); usleep(100000); }
void rowstore_gather_callback(void *unused) {
    static char page[4096];
    (void)unused;
    pthread_mutex_lock(&shard);
    for (int i = 0; i < 16; i++) if (pread(fd, page, sizeof page, (rand() % 1024) * 4096L) < 0) break;
    if (extra_us) usleep(extra_us);
    pthread_mutex_unlock(&shard);
}
"""
FAULT_STEP = 200
HIDDEN = 4096


def say(rank: int, text: str) -> None:
    """One log line in SGLang's form."""
    stamp = datetime.now().strftime("%Y-%m-%d %H:%M:%S")
    os.write(2, f"[{stamp} TP{rank}] {text}\n".encode())


def build_store(folder: Path) -> ctypes.CDLL:
    """Compile the callback once a rank and open the table it reads."""
    source, library = folder / f"store{os.getpid()}.c", folder / f"store{os.getpid()}.so"
    source.write_text(CALLBACK)
    subprocess.run(["cc", "-O1", "-g", "-shared", "-fPIC", "-o", library, source, "-lpthread"], check=True)
    table = folder / "table.bin"
    if not table.exists():
        table.write_bytes(os.urandom(4 << 20))
    store = ctypes.CDLL(str(library))
    store.store_open(str(table).encode())
    return store


class Engine:
    """One rank."""

    def __init__(self, rank: int, world: int, folder: Path, fault: str, culprit: int) -> None:
        self.rank, self.world, self.folder = rank, world, folder
        self.fault = fault if rank == culprit else ""
        self.shared_fault = fault
        torch.cuda.set_device(rank)
        say(rank, "Init torch distributed begin.")
        if fault == "bootstuck" and rank == culprit:
            say(rank, "Load weight begin. avail mem=138.00 GB")
            time.sleep(3600)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
        self.second = dist.new_group(list(range(world)))
        say(rank, "Init torch distributed ends. elapsed=1.00 s, mem usage=1.00 GB")
        self.store = build_store(folder)
        self.runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.partition('.')[0]}")
        self.weights = [torch.randn(HIDDEN, HIDDEN, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
        self.x = torch.randn(64, HIDDEN, device="cuda", dtype=torch.bfloat16)
        self.part = torch.randn(16160, device="cuda", dtype=torch.bfloat16)
        self.whole = torch.empty(16160 * world, device="cuda", dtype=torch.bfloat16)
        self.word = torch.zeros(1, device="cuda", dtype=torch.int64)
        self.capture()

    def capture(self) -> None:
        """One graph: callback, matrix products, all-reduce."""
        say(self.rank, "Capture cuda graph begin. This can take up to several minutes. avail mem=100.00 GB")
        # Libraries must be initialised before a capture: once through everything that the graph will hold.
        dist.all_reduce(self.forward())
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.host_callback()
            dist.all_reduce(self.forward())
        say(self.rank, "Capture cuda graph end. Time elapsed: 1.00 s. mem usage=1.00 GB. avail mem=99.00 GB.")
        if self.rank == 0:
            say(self.rank, "The server is fired up and ready to roll!")

    def forward(self) -> torch.Tensor:
        """Matrix products that keep their scale."""
        x = self.x
        for weight in self.weights:
            x = torch.nn.functional.normalize((x @ weight).float(), dim=-1).to(torch.bfloat16)
        return x

    def host_callback(self) -> None:
        """Enqueue the store's gather on the current stream."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        entry = ctypes.cast(self.store.rowstore_gather_callback, ctypes.c_void_p)
        status = self.runtime.cudaLaunchHostFunc(stream, entry, None)
        if status:
            raise RuntimeError(f"cudaLaunchHostFunc returned {status}")

    def step(self, number: int) -> None:
        """One decode step."""
        if number == FAULT_STEP:
            self.inject()
        reverse = number == FAULT_STEP and self.fault == "order"
        if reverse:
            dist.broadcast(self.word, 0, group=self.second)
        if not (number == FAULT_STEP and self.fault == "skip_replay"):
            self.graph.replay()
        gathers = 5 + (number == FAULT_STEP and self.fault == "extra") - (number == FAULT_STEP and self.fault == "skip")
        for _ in range(gathers):
            dist.all_gather_into_tensor(self.whole, self.part)
        if not reverse:
            dist.broadcast(self.word, 0, group=self.second)
        torch.cuda.synchronize()

    def inject(self) -> None:
        """The fault of this rank, if it has one."""
        match self.fault:
            case "pylock":
                lock, held = threading.Lock(), threading.Event()
                threading.Thread(target=self.hold, args=(lock, held), daemon=True).start()
                held.wait()
                self.wait_for_grammar(lock)
            case "mutex":
                self.store.store_hold()
            case "slow":
                self.store.store_slow(20000)
            case "gpuspin":
                torch.cuda._sleep(1 << 62)
            case "xid":
                torch.empty(4, device="cuda").index_put_((torch.tensor([1 << 40], device="cuda"),), torch.tensor(1.0))
            case "gil":
                ctypes.PyDLL(None).sleep(3600)
        if self.shared_fault == "prefill":
            self.long_prefill()

    def hold(self, lock: threading.Lock, held: threading.Event) -> None:
        """Takes a lock and keeps it."""
        with lock:
            held.set()
            time.sleep(3600)

    def wait_for_grammar(self, lock: threading.Lock) -> None:
        """Waits for a lock that nobody releases."""
        lock.acquire()

    def long_prefill(self) -> None:
        """Many seconds of real computing on every rank."""
        if self.rank == 0:
            say(0, "Prefill batch, #new-seq: 1, #new-token: 8192, #cached-token: 0, token usage: 0.31, "
                   "#running-req: 8, #queue-req: 3, cuda graph: False, input throughput (token/s): 900.00")
        big = torch.randn(16384, 16384, device="cuda", dtype=torch.bfloat16)
        end = time.monotonic() + 40
        while time.monotonic() < end:
            for _ in range(8):
                big = torch.nn.functional.normalize((big @ big).float(), dim=-1).to(torch.bfloat16)
            torch.cuda.synchronize()

    def run(self, seconds: float) -> None:
        """Decode until the time is over or the fault stops it."""
        began, last, number = time.monotonic(), time.monotonic(), 0
        while time.monotonic() < began + seconds:
            self.step(number)
            number += 1
            (self.folder / f"step.{self.rank}").write_text(str(number))
            if self.shared_fault == "idle" and number == FAULT_STEP:
                if self.rank == 0:
                    say(0, "Decode batch, #running-req: 0, #token: 0, token usage: 0.00, cuda graph: True, "
                           "gen throughput (token/s): 10.00, #queue-req: 0")
                time.sleep(3600)
            if self.rank == 0 and number % 40 == 0:
                rate, last = 320 / (time.monotonic() - last), time.monotonic()
                say(0, f"Decode batch, #running-req: 8, #token: {60000 + 8 * number}, token usage: 0.25, cuda graph: "
                       f"True, gen throughput (token/s): {rate:.2f}, #queue-req: 0")
        say(self.rank, f"done steps={number}")


def main() -> None:
    """`nccl_engine.py FOLDER FAULT CULPRIT SECONDS` with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("fault")
    parser.add_argument("culprit", type=int)
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    Engine(rank, world, given.folder, given.fault, given.culprit).run(given.seconds)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
