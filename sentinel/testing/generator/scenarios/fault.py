"""Hardware faults that precede the stall."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from random import Random

from sentinel.testing.generator import host_writer, vllm_writer
from sentinel.testing.generator.fleet import Rank, make_fleet
from sentinel.testing.generator.nccl_writer import completion_error
from sentinel.testing.generator.story import Label, Story, hang, serve, victim_rank


def _faulty(rng: Random, *, several: bool = False) -> Story:
    story = Story(make_fleet(rng, engines=("sglang", "vllm"), max_world=64, plain=True), rng)
    while several and len(story.fleet.hosts) < 2:
        story = Story(make_fleet(rng, engines=("sglang", "vllm"), max_world=64, plain=True), rng)
    serve(story)
    hang(story)
    vllm_writer.shm_lines(story)
    return story


def _driver_lines(kind: str, rank: Rank, name: str, rng: Random) -> list[tuple[float, str]]:
    """What the driver prints for one kind of failure, with the seconds after the failure."""
    bus = f"{rank.bus:02x}"
    xid, whose = f"NVRM: Xid (PCI:0000:{bus}:00): ", f"pid={rank.pid}, name={name}"
    recovery = f"{xid}154, GPU recovery action changed from 0x0 (None) to "
    match kind:
        case "bus":
            lost = "GPU has fallen off the bus."
            lines = f"{xid}79, pid='<unknown>', name=<unknown>, {lost}\nNVRM: GPU 0000:{bus}:00.0: {lost}"
            return [(0.0, lines), (0.4, f"{recovery}0x2 (Node Reboot Required)")]
        case "bare_bus":
            lines = (
                f"NVRM: The NVIDIA GPU 0000:{bus}:00.0\nNVRM: (PCI ID: 10de:2330) installed in this system has\n"
                "NVRM: fallen off the bus and is not responding to commands."
            )
            return [(0.0, lines)]
        case "ecc":
            error = "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer"
            contained = f"{xid}{rng.choice(('94', '95'))}, {whose}, Contained: SM (0x1). RST: No, D-RST: No"
            return [
                (0.0, f"{xid}48, {whose}, {error} at partition 5, subpartition 0."),
                (0.2, contained),
                (0.5, f"{recovery}0x4 (Drain and Reset)"),
            ]
        case "firmware":
            timeout = f"Timeout after 45s of waiting for RPC response from GPU{rank.local} GSP!"
            expected = "Expected function 76 (GSP_RM_CONTROL) sequence 4411 (0x20801702 0x4)."
            return [(1.0, f"{xid}119, {whose}, {timeout} {expected}"), (2.0, f"{recovery}0x1 (GPU Reset Required)")]
        case _:
            link = "fatal error detected on link 4(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)"
            return [(0.0, f"{xid}74, {whose}, NVLink: {link}")]


def gpu(rng: Random) -> Story:
    """A GPU fails at the second decode stops: lost from the bus, uncorrectable memory, stuck firmware, broken NVLink."""
    story = _faulty(rng)
    who = victim_rank(story)
    rank = story.rank(who)
    at = story.t0_s + rng.uniform(-0.6, 0.8)
    kind = rng.choice(("bus", "bare_bus", "ecc", "firmware", "nvlink"))
    for later_s, line in _driver_lines(kind, rank, story.fleet.title(rank)[:15], rng):
        story.printk(at + later_s, line, rank.host)
    if kind in ("bus", "bare_bus"):
        story.states[who].gpu = "lost"
    story.focus = (who, (who + 1) % story.fleet.world)
    story.keep.update(("kernel", "nccl", "gpu"))
    several = len(story.fleet.hosts) > 1
    story.label = Label(
        ("fault.gpu",),
        True,
        (who,),
        (rank.host.name,) if several else None,
        ("drain_node",),
        ("rowstore_mode",),
        situation=f"GPU fault ({kind}) before the stall",
    )
    return story


def nic(rng: Random) -> Story:
    """A port goes down just before decode stops; 30 s later the transport reports it."""
    story = _faulty(rng, several=True)
    host = rng.choice(story.fleet.hosts)
    index = rng.randrange(4)
    device, netdev = host_writer.DEVICES[index], f"ens{index + 3}f0np0"
    pci = f"0000:{0x9A + index:02x}:00.0"
    at = story.t0_s - rng.uniform(0.2, 1.5)
    if rng.random() < 0.5:
        story.printk(at - 400, f"mlx5_core {pci} {netdev}: Link down", host)
        story.printk(at - 392, f"mlx5_core {pci} {netdev}: Link up", host)
    if rng.random() < 0.5:
        story.printk(
            at,
            f"mlx5_core {pci}: port_module:260:(pid 0): Port module event[error]: module 0, Cable error, Bad or shorted cable/module",
            host,
        )
    story.printk(at + 0.01, f"mlx5_core {pci} {netdev}: Link down", host)
    rank = story.fleet.on(host)[0]
    peer = next(other for other in story.fleet.ranks if other.host is not host)
    if story.silence_s > 40:
        warning = completion_error(story, rank, peer, 12, device, story.t0_s + 30)
        story.say(story.t0_s + 30, warning, rank.rank, raw=True)
    story.files.append((host, "sysfs.txt", host_writer.port_states(device, netdev)))
    story.focus = (rank.rank, peer.rank)
    story.keep.add("kernel")
    story.label = Label(
        ("fault.nic", "hang.network"),
        True,
        None,
        (host.name,),
        ("drain_node",),
        ("rowstore_mode",),
        situation="a port went down before the stall",
    )
    return story


SCENARIOS = (gpu, gpu, gpu, nic, nic)
