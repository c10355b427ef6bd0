"""`python -m sentinel.agent.nvml_child SECONDS`: asks the NVIDIA driver, so that only this process is stuck when it is.

Prints what `nvidia-smi --format=csv` prints, in rounds: a line `# GPU N` before each device is asked, so that the last
line names the one that does not answer; a row a device; every tenth round the processes of the devices. Ends when its
standard input is closed. Exit status 3: there is no driver or library here, and asking again will not help.
"""

import select
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pynvml  # type: ignore[import-untyped]

from sentinel.agent.nvml_protocol import NO_DRIVER
from sentinel.plumbing.clock import SystemClock, local_text

HEADER = (
    "timestamp, index, uuid, pci.bus_id, utilization.gpu [%], utilization.memory [%], power.draw [W], "
    "enforced.power.limit [W], clocks.sm [MHz], memory.used [MiB], temperature.gpu, clocks_event_reasons.active"
)
PROCESSES = "gpu_uuid, index, pid"

PROCESSES_EVERY = 10
_LOST = {getattr(pynvml, name, None) for name in ("NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED")}


def main(every_s: float) -> int:
    """Ask until nobody listens."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        _say(f"# no driver: {error}")
        return NO_DRIVER
    turn = 0
    while not select.select([sys.stdin], [], [], every_s if turn else 0.0)[0]:
        _say(HEADER)
        for index in range(count):
            _say(f"# GPU {index}")
            _say(", ".join(_row(index)))
        if turn % PROCESSES_EVERY == 0:
            _say(PROCESSES)
            for line in _processes(count):
                _say(line)
        turn += 1
    return 0


def _row(index: int) -> Iterator[str]:
    yield from (local_text(SystemClock().now().wall_s, "%Y/%m/%d %H:%M:%S.000"), str(index))
    try:
        device = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError as error:
        yield from ("[N/A]", "[N/A]", *[_refused(error)] * 8)
        return
    asked: tuple[Callable[[], Any], ...] = (
        lambda: pynvml.nvmlDeviceGetUUID(device),
        lambda: pynvml.nvmlDeviceGetPciInfo(device).busId,
        lambda: f"{pynvml.nvmlDeviceGetUtilizationRates(device).gpu} %",
        lambda: f"{pynvml.nvmlDeviceGetUtilizationRates(device).memory} %",
        lambda: f"{pynvml.nvmlDeviceGetPowerUsage(device) / 1000:.2f} W",
        lambda: f"{pynvml.nvmlDeviceGetEnforcedPowerLimit(device) / 1000:.2f} W",
        lambda: f"{pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM)} MHz",
        lambda: f"{pynvml.nvmlDeviceGetMemoryInfo(device).used >> 20} MiB",
        lambda: pynvml.nvmlDeviceGetTemperature(device, pynvml.NVML_TEMPERATURE_GPU),
        lambda: f"0x{pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(device):016x}",
    )
    for ask in asked:
        try:
            answer = ask()
        except pynvml.NVMLError as error:
            answer = _refused(error)
        yield answer.decode() if isinstance(answer, bytes) else str(answer)


def _processes(count: int) -> Iterator[str]:
    for index in range(count):
        try:
            device = pynvml.nvmlDeviceGetHandleByIndex(index)
            uuid = pynvml.nvmlDeviceGetUUID(device)
            running = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        except pynvml.NVMLError:
            continue
        name = uuid.decode() if isinstance(uuid, bytes) else uuid
        yield from (f"{name}, {index}, {process.pid}" for process in running)


def _refused(error: pynvml.NVMLError) -> str:
    """As the driver's own tool prints it."""
    return "[GPU is lost]" if error.value in _LOST else "[N/A]"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    try:
        sys.exit(main(float(sys.argv[1])))
    except BrokenPipeError:
        sys.exit(0)
