"""All ranks enqueued the same: the device, the collective or the network does not finish; or start-up never completes."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from random import Random

from sentinel.testing.generator import host_writer, stack_writer, vllm_writer
from sentinel.testing.generator.fleet import make_fleet
from sentinel.testing.generator.nccl_writer import completion_error
from sentinel.testing.generator.story import Label, Story, hang, serve, victim_rank

NCCL_KERNEL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
OTHER_KERNELS = (
    "mla_sparse_prefill_fwd_kernel<512, 64, TileParams>(TileParams)", "flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128>>(Flash_fwd_params)",
    "cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<PersistentScheduler>>(Params)",
)  # fmt: skip
CUSTOM_REDUCE = (
    "cross_device_reduce_1stage<__nv_bfloat16, 2>(RankData*, RankSignals, Signal*, __nv_bfloat16*, int, int)",
    "all_reduce_one_shot_push_kernel<__nv_bfloat16, 4>(AllReducePushData, void const*, void*, unsigned int)",
)


def _spinning(rng: Random, **limits: int) -> Story:
    story = Story(
        make_fleet(rng, engines=("sglang", "vllm"), max_world=limits.get("max_world", 32), min_world=2, plain=True), rng
    )
    serve(story)
    hang(story)
    story.keep.update(("nccl", "gpu", "stacks"))
    vllm_writer.shm_lines(story)
    return story


def _kernels(story: Story, ranks: tuple[int, ...]) -> None:
    for number in ranks:
        rank = story.rank(number)
        story.files.append((rank.host, f"cuda-gdb_rank{number}.txt", stack_writer.cuda_kernels(story, rank)))


def collective(rng: Random) -> Story:
    """Every rank launched the same collective and its kernel stays resident everywhere; no error anywhere."""
    story = _spinning(rng, max_world=8)
    for state in story.states.values():
        state.kernel = NCCL_KERNEL
    story.keep.add("ras")
    story.focus = tuple(range(story.fleet.world))
    _kernels(story, tuple(range(story.fleet.world)))
    story.label = Label(
        ("hang.collective_stuck",), True, (), None, ("restart_engine|change_setting|page_human",), ("drain_node", "rowstore_mode"),
        situation="the same collective is resident on every rank and never completes",
    )  # fmt: skip
    return story


def window_registration(rng: Random) -> Story:
    """Every rank is inside the same host-side NCCL call, GPUs idle, after a burst of prompts."""
    story = Story(make_fleet(rng, engines=("sglang",), max_world=8, hosts=1, plain=True), rng)
    serve(story)
    hang(story)
    story.all_states(place="window_register", process="S", cpu=0.2, gpu="held", wchan="unix_stream_data_wait")
    story.focus = tuple(range(story.fleet.world))
    story.keep.update(("stacks", "gpu"))
    story.label = Label(
        ("hang.collective_stuck", "hang.scheduler"), True, (), None, ("restart_engine|page_human|change_setting",), ("drain_node", "rowstore_mode"),
        situation="all ranks wait in the same NCCL registration call, GPUs idle",
    )  # fmt: skip
    return story


def one_kernel(rng: Random) -> Story:
    """A compute kernel of one rank never ends; its peers wait for it inside a collective."""
    story = _spinning(rng, max_world=16)
    who = victim_rank(story)
    for number, state in story.states.items():
        state.kernel = rng.choice(OTHER_KERNELS) if number == who else NCCL_KERNEL
    story.states[who].place = rng.choice(("gpu_wait", "kernel_launch"))
    story.focus = (who, (who + 1) % story.fleet.world)
    _kernels(story, story.focus)
    story.label = Label(
        ("hang.device_spin",), True, (who,), None, ("restart_engine|capture_more|change_setting",), ("drain_node", "rowstore_mode"),
        situation="a compute kernel of one rank never ends",
    )  # fmt: skip
    return story


def custom_reduce(rng: Random) -> Story:
    """A custom all-reduce kernel spins on every GPU; NCCL has nothing pending."""
    story = _spinning(rng, max_world=8)
    kernel = rng.choice(CUSTOM_REDUCE)
    for state in story.states.values():
        state.kernel = kernel
    story.keep.add("ras")
    story.focus = tuple(range(story.fleet.world))
    _kernels(story, tuple(rng.sample(range(story.fleet.world), rng.randrange(1, story.fleet.world + 1))))
    story.label = Label(
        ("hang.device_spin",), True, None, None, ("restart_engine|change_setting",), ("drain_node", "rowstore_mode"),
        situation="a custom all-reduce kernel spins on the GPUs",
    )  # fmt: skip
    return story


def network(rng: Random) -> Story:
    """The path between two hosts is lost: ack time-outs first, about 30 s later completion errors on both ends."""
    story = Story(make_fleet(rng, engines=("sglang", "vllm"), min_world=4, max_world=64, plain=True), rng)
    while len(story.fleet.hosts) < 2:
        story = Story(make_fleet(rng, engines=("sglang", "vllm"), min_world=4, max_world=64, plain=True), rng)
    serve(story)
    hang(story, rng.choice((45.0, 70.0, 130.0)))
    left, right = rng.sample(story.fleet.hosts, 2)
    device = rng.choice(host_writer.DEVICES)
    lane = rng.randrange(len(story.fleet.on(left)))
    pair = story.fleet.on(left)[lane], story.fleet.on(right)[lane]
    at = story.t0_s + rng.uniform(28, 33)
    for near, far in (pair, pair[::-1]):
        warning = completion_error(story, near, far, 12, device, at)
        story.say(at, warning, near.rank, raw=True)
        samples = ((story.t0_s + 2, {device: 0}), (story.t0_s + 20, {device: 3}), (story.end_s, {device: 8}))
        story.files.append((near.host, "rdma_counters.txt", host_writer.rdma(near.host, samples, 0)))
    story.focus = (pair[0].rank, pair[1].rank)
    story.keep.update(("nccl", "ps"))
    vllm_writer.shm_lines(story)
    story.label = Label(
        ("hang.network", "fault.nic"), True, None, None, ("drain_node|page_human|restart_engine",), ("rowstore_mode",),
        situation="the transport between two hosts failed while all processes were alive",
    )  # fmt: skip
    return story


def absent_rank(rng: Random) -> Story:
    """Start-up: one rank never reaches the communicator, its peers wait in the rendezvous."""
    story = Story(make_fleet(rng, engines=("sglang", "vllm", "packaged"), max_world=32, plain=True), rng)
    story.t0_s = story.fleet.start_s + 40
    story.end_s = story.t0_s + rng.choice((300.0, 840.0))
    who = victim_rank(story)
    story.init_open, story.boot_stop = True, "dist_init"
    story.init_missing = (who,)
    story.all_states(place="comm_init", process="S", cpu=2.0, gpu="held", wchan="do_sys_poll")
    state = story.states[who]
    state.place, state.wchan, state.gpu = rng.choice(
        (
            ("load", "folio_wait_bit_c", "parked"),
            ("socket_wait", "sk_wait_data", "parked"),
            ("lock", "futex_do_wait", "parked"),
        )
    )
    story.focus = (who, 0, (who + 1) % story.fleet.world)
    story.keep.update(("nccl", "stacks"))
    story.label = Label(
        ("hang.comm_init",), True, (who,), None, ("change_setting|page_human|capture_more|restart_engine",), ("rowstore_mode",),
        situation="one rank never joins the communicator at start-up",
    )  # fmt: skip
    return story


def gid_mismatch(rng: Random) -> Story:
    """Start-up over RoCE: the configured GID index does not exist on one host."""
    story = Story(make_fleet(rng, engines=("vllm", "sglang"), min_world=4, max_world=32, plain=True), rng)
    while len(story.fleet.hosts) < 2:
        story = Story(make_fleet(rng, engines=("vllm", "sglang"), min_world=4, max_world=32, plain=True), rng)
    story.t0_s = story.fleet.start_s + 40
    story.end_s = story.t0_s + rng.choice((300.0, 840.0))
    story.init_open, story.boot_stop = True, "dist_init"
    story.all_states(place="comm_init", process="R", cpu=98.0, gpu="held")
    broken = rng.choice(story.fleet.hosts)
    index = rng.choice((3, 5))
    for host in story.fleet.hosts:
        present = (0, 1) if host is broken else (0, 1, 2, index)
        story.files.append((host, "show_gids.txt", host_writer.gids(host.address, tuple(sorted(set(present))))))
        story.files.append(
            (
                host,
                "env.txt",
                host_writer.environment((f"NCCL_IB_GID_INDEX={index}", "NCCL_IB_HCA=mlx5_0,mlx5_1,mlx5_2,mlx5_3")),
            )
        )
    story.focus = tuple(story.fleet.on(host)[0].rank for host in story.fleet.hosts)
    story.keep.update(("nccl",))
    story.label = Label(
        ("hang.comm_init",), True, None, (broken.name,), ("change_setting",), ("rowstore_mode",),
        situation="the configured GID index is absent on one host, communicator init never completes",
    )  # fmt: skip
    return story


def only_spinning(rng: Random) -> Story:
    """All GPUs spin at low power and nothing else was kept: stuck and diverged cannot be told apart."""
    story = Story(make_fleet(rng, engines=("sglang", "vllm"), max_world=16, plain=True), rng)
    serve(story)
    hang(story)
    story.keep.update(("gpu", "stacks"))
    story.calls.clear()
    story.label = Label(
        ("unknown", "hang.collective_stuck", "hang.device_spin", "hang.rank_divergence", "hang.network"), True, (), None,
        ("capture_more|restart_engine|page_human",), ("drain_node", "rowstore_mode"), max_confidence="low",
        situation="GPUs spin, no enqueue evidence: not decidable",
    )  # fmt: skip
    return story


SCENARIOS = (
    collective,
    window_registration,
    one_kernel,
    one_kernel,
    custom_reduce,
    network,
    network,
    absent_rank,
    absent_rank,
    gid_mismatch,
    only_spinning,
)
