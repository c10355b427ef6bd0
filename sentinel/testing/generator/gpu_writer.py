"""nvidia-smi: CSV samples over time, the table, dmon."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from random import Random

from sentinel.testing.generator import clock
from sentinel.testing.generator.fleet import GpuModel, Host
from sentinel.testing.generator.story import Gpu, Story

HEADER = (
    "timestamp, index, utilization.gpu [%], utilization.memory [%], power.draw [W], clocks.current.sm [MHz], "
    "memory.used [MiB], temperature.gpu, clocks_event_reasons.active"
)
SLIM = "timestamp, index, utilization.gpu [%], utilization.memory [%], power.draw [W], clocks.current.sm [MHz], memory.used [MiB]"


def _reading(rng: Random, model: GpuModel, state: Gpu) -> tuple[int, int, float, int, int, int]:
    """util, memory util, power, SM clock, temperature, event bits."""
    watts = {
        "parked": model.parked_w, "held": model.held_w, "spin": model.spin_w, "decode": model.decode_w, "full": model.full_w,
        "hot": model.spin_w * 0.9, "lost": 0.0,
    }[state]  # fmt: skip
    power = watts * rng.uniform(0.95, 1.05)
    memory_works = model.memory_mib is not None
    util, memory = {
        "parked": (0, 0), "held": (0, 0), "spin": (100, 0), "decode": (rng.randrange(88, 100), rng.randrange(22, 44)),
        "full": (rng.randrange(96, 101), rng.randrange(25, 60)), "hot": (100, rng.randrange(8, 15)), "lost": (0, 0),
    }[state]  # fmt: skip
    sm = 345 if state == "parked" else rng.randrange(380, 520) if state == "hot" else model.sm_mhz
    temp = {"parked": 30, "held": 33, "spin": 42, "decode": 55, "full": 64, "hot": 87, "lost": 0}[
        state
    ] + rng.randrange(-2, 3)
    bits = 1 if state == "parked" else 0x20 if state == "hot" else 0
    return util, memory if memory_works else 0, power, sm, temp, bits


def csv(story: Story, host: Host, *, whole: bool) -> str:
    """Samples of every GPU of a host: the whole run, or only the minutes before the end."""
    rng, model = story.rng, story.fleet.gpu
    slim = rng.random() < 0.2
    lines = [SLIM if slim else HEADER]
    begin = story.end_s - min(30.0, max(story.silence_s * 0.6, 6.0))
    if whole:
        begin = story.t0_s - 40
    step = max((story.end_s - begin) / 24, 1.0)
    at = begin
    while at <= story.end_s:
        for rank in story.fleet.on(host):
            state = story.states[rank.rank].gpu if at > story.t0_s + 1 or not story.beats else story.gpu_before
            if story.states[rank.rank].gpu == "hot":
                state = "hot" if at > story.end_s - 0.7 * (story.end_s - begin) else story.gpu_before
            lines.append(_csv_row(rng, model, at + rank.local * 0.012, rank.local, state, slim))
        at += step
    return "\n".join(lines) + "\n"


def _csv_row(rng: Random, model: GpuModel, at_s: float, index: int, state: Gpu, slim: bool) -> str:
    if state == "lost":
        return (
            f"{clock.smi(at_s)}, {index}, [Unknown Error], [Unknown Error], [GPU is lost], [GPU is lost], [GPU is lost]"
            + ("" if slim else ", [GPU is lost], [GPU is lost]")
        )
    util, memory, power, sm, temp, bits = _reading(rng, model, state)
    used = "[N/A]" if model.memory_mib is None else f"{int(model.memory_mib * 0.84)} MiB"
    tail = "" if slim else f", {temp}, 0x{bits:016x}"
    return f"{clock.smi(at_s)}, {index}, {util} %, {memory} %, {power:.2f} W, {sm} MHz, {used}{tail}"


def table(story: Story, host: Host) -> str:
    """The nvidia-smi table with its processes."""
    rng, model = story.rng, story.fleet.gpu
    rule = "+-----------------------------------------+------------------------+----------------------+"
    lines = [
        f"{clock.dmesg(story.end_s)}       ",
        "+-----------------------------------------------------------------------------------------+",
        "| NVIDIA-SMI 580.95.05              Driver Version: 580.95.05      CUDA Version: 13.0     |", rule,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
    ]  # fmt: skip
    for rank in story.fleet.on(host):
        util, _, power, _, temp, _ = _reading(rng, model, story.states[rank.rank].gpu)
        cap = "N/A" if model.limit_w is None else f"{model.limit_w:.0f}W"
        memory = (
            "Not Supported"
            if model.memory_mib is None
            else f"{int(model.memory_mib * 0.84):6d}MiB / {model.memory_mib:6d}MiB"
        )
        lines += [
            f"|   {rank.local}  {model.name:<28} On  |   00000000:{rank.bus:02X}:00.0 Off |                    0 |",
            f"| N/A   {temp:2d}C    P0           {power:4.0f}W / {cap:>5} | {memory:>22} |    {util:3d}%      Default |",
            "|                                         |                        |             Disabled |", rule,
        ]  # fmt: skip
    lines += [
        "", "+-----------------------------------------------------------------------------------------+",
        "| Processes:                                                                              |",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|=========================================================================================|",
    ]  # fmt: skip
    for rank in story.fleet.on(host):
        if story.states[rank.rank].alive:
            lines.append(
                f"|    {rank.local}   N/A  N/A {rank.pid:16d}      C   {story.fleet.title(rank)[:30]:<30}      71220MiB |"
            )
    lines.append("+-----------------------------------------------------------------------------------------+")
    return "\n".join(lines) + "\n"


def dmon(story: Story, host: Host) -> str:
    """`nvidia-smi dmon`."""
    rng, model = story.rng, story.fleet.gpu
    lines = [
        "# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk ",
        "# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz ",
    ]
    for _ in range(12):
        for rank in story.fleet.on(host):
            util, memory, power, sm, temp, _ = _reading(rng, model, story.states[rank.rank].gpu)
            lines.append(
                f"{rank.local:5d} {power:6.0f} {temp:6d} {temp + 8:6d} {util:6d} {memory:6d}      0      0      0      0   3201 {sm:6d} "
            )
    return "\n".join(lines) + "\n"
