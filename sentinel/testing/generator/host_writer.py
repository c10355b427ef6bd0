"""Files about a host or its network: pressure, memory, RDMA counters and states, GIDs, environment, sockets, scrapes."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from sentinel.testing.generator import clock
from sentinel.testing.generator.fleet import Host
from sentinel.testing.generator.story import Story


def memory_sample(at_s: float, *, full: float, available_kb: int, swap_free_kb: int, stalls: int, faults: int) -> str:
    """Pressure, meminfo and vmstat at one instant."""
    return (
        f"# {clock.full(at_s)}\n==> /proc/pressure/memory <==\n"
        f"some avg10={min(full + 8.7, 99):.2f} avg60={min(full + 5.9, 99):.2f} avg300={full * 0.6:.2f} total={int(at_s * 1000) % 10**9}\n"
        f"full avg10={full:.2f} avg60={full * 0.95:.2f} avg300={full * 0.5:.2f} total={int(at_s * 800) % 10**9}\n"
        f"==> /proc/meminfo <==\nMemTotal:       125512340 kB\nMemFree:        {available_kb // 2} kB\nMemAvailable:   {available_kb} kB\n"
        f"Cached:         1204 kB\nSwapTotal:      16777212 kB\nSwapFree:       {swap_free_kb} kB\n"
        f"==> /proc/vmstat <==\nallocstall_movable {stalls}\npgmajfault {faults}\npgscan_direct {stalls * 4100}\noom_kill 0\n"
    )


def io_pressure(full: float) -> str:
    """/proc/pressure/io."""
    return (
        f"some avg10={min(full + 1, 99.5):.2f} avg60={min(full + 1, 99.4):.2f} avg300={full * 0.97:.2f} total=812201220\n"
        f"full avg10={full:.2f} avg60={full:.2f} avg300={full * 0.95:.2f} total=802201220\n"
    )


DEVICES = ("mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3")


def rdma(host: Host, samples: tuple[tuple[float, dict[str, int]], ...], moved: int) -> str:
    """RDMA counters at several instants: local ack time-outs per device as given, requests moving by `moved` a sample."""
    lines = []
    for number, (at_s, timeouts) in enumerate(samples):
        lines.append(f"# {clock.full(at_s)} {host.name}")
        for index, device in enumerate(DEVICES):
            lines += [
                f"{device}/hw_counters/local_ack_timeout_err {timeouts.get(device, 0)}", f"{device}/hw_counters/out_of_sequence {110 + index}",
                f"{device}/hw_counters/rnr_nak_retry_err 0", f"{device}/hw_counters/rx_write_requests {91220000000 + index * 100 + number * moved}",
                f"{device}/counters/port_rcv_data {811110220114 + index * 1000 + number * moved * 512}", f"{device}/counters/link_downed 0",
            ]  # fmt: skip
    return "\n".join(lines) + "\n"


def port_states(down: str, netdev: str) -> str:
    """Port states in sysfs, one port down."""
    lines = []
    for device in DEVICES:
        broken = device == down
        base = f"/sys/class/infiniband/{device}"
        lines += [
            f"{base}/ports/1/state: {'1: DOWN' if broken else '4: ACTIVE'}",
            f"{base}/ports/1/phys_state: {'3: Disabled' if broken else '5: LinkUp'}", f"{base}/ports/1/link_layer: Ethernet",
        ]  # fmt: skip
        if broken:
            lines.append(f"{base}/device/net/{netdev}/carrier_changes: 7")
    return "\n".join(lines) + "\n"


def gids(address: str, indices: tuple[int, ...]) -> str:
    """`show_gids`: GID tables of all devices."""
    lines = [
        "DEV     PORT    INDEX   GID                                     IPv4            VER     DEV",
        "---     ----    -----   ---                                     ------------    ---     ---",
    ]
    for number, device in enumerate(DEVICES):
        for index in indices:
            version = "v2" if index % 2 else "v1"
            lines.append(
                f"{device}  1       {index}       0000:0000:0000:0000:0000:ffff:0a01:{number:02x}{index:02x}  {address:<15} {version}      ens{number}f0np0"
            )
    return "\n".join(lines) + f"\nn_gids_found={len(DEVICES) * len(indices)}\n"


def scrape(story: Story, which: int) -> str:
    """A Prometheus scrape of the story's counters, first (0) or second (1)."""
    fleet = story.fleet
    label = (
        '{engine="0",model_name="m"}'
        if fleet.engine == "vllm"
        else '{model_name="m",engine_type="unified",tp_rank="0",pp_rank="0"}'
    )
    lines = []
    for name, values in story.counters.items():
        kind = "counter" if name.endswith(("_total", "_count")) else "gauge"
        lines += [
            f"# HELP {name} {name.partition(':')[2].replace('_', ' ')}",
            f"# TYPE {name} {kind}",
            f"{name}{label} {float(values[which])}",
        ]
    return "\n".join(lines) + "\n"


def environment(extra: tuple[str, ...] = ()) -> str:
    """/proc/PID/environ, one variable a line."""
    fixed = (
        "PATH=/usr/local/bin:/usr/bin:/bin",
        "NCCL_DEBUG=INFO",
        "NCCL_DEBUG_SUBSYS=INIT,COLL,NET",
        "NCCL_DEBUG_FILE=/logs/nccl.%h.%p",
    )
    return "\n".join((*fixed, *extra)) + "\n"


def sockets(story: Story, pid: int, backlog: int, unread: bool) -> str:
    """`ss -tnp`: the listener with its accept backlog, and connections with unread bytes."""
    rng = story.rng
    lines = ["State      Recv-Q Send-Q Local Address:Port  Peer Address:Port Process"]
    address = story.fleet.hosts[0].address
    lines.append(
        f'LISTEN     {backlog:<6} 2048   0.0.0.0:30000       0.0.0.0:*         users:(("python3",pid={pid},fd=41))'
    )
    for number in range(12):
        waiting = rng.randrange(900, 9000) if unread else 0
        lines.append(
            f'ESTAB      {waiting:<6} 0      {address}:30000      10.0.0.{40 + number}:{rng.randrange(31000, 59000)}   users:(("python3",pid={pid},fd={60 + number}))'
        )
    return "\n".join(lines) + "\n"


def health_csv(story: Story) -> str:
    """Probes of the health endpoint, one a line."""
    lines = ["time,url,status,milliseconds"]
    for at_s, status in story.probes:
        stamp = clock.rfc3339(at_s - story.fleet.utc_offset_s)[:19] + "Z"
        lines.append(
            f"{stamp},/health,{status},{story.rng.uniform(4, 40):.1f}" if status else f"{stamp},/health,timeout,10000.0"
        )
    return "\n".join(lines) + "\n"
