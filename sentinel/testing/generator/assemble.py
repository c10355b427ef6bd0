"""Turns a story into files: which sources somebody happened to keep, under which names, in which dialect, how damaged."""

# ruff: noqa: E501 - printed lines stay whole, so that they can be searched for

from random import Random

from sentinel.testing.generator import (
    dialect,
    gpu_writer,
    host_writer,
    kernel_writer,
    nccl_writer,
    process_writer,
    ras_writer,
    sglang_writer,
    stack_writer,
    trtllm_writer,
    vllm_writer,
)  # fmt: skip
from sentinel.testing.generator.fleet import Host, Rank
from sentinel.testing.generator.frames import uses_core
from sentinel.testing.generator.story import Story

PER_RANK_MAX = 8
CHANCE = {
    "engine": 1.0, "nccl": 0.6, "stacks": 0.7, "native": 0.35, "gpu": 0.75, "ps": 0.55, "threads": 0.35, "ras": 0.4,
    "kernel": 0.55, "metrics": 0.5, "environment": 0.25,
}  # fmt: skip
"""How often somebody keeps a source that does not decide the case."""

DIRTY = 0.3
"""Share of cases in which some undecisive file is cut or damaged."""


class _Folder:
    """Files by path; hosts become folders or name parts."""

    def __init__(self, story: Story) -> None:
        self.rng = story.rng
        several = len(story.fleet.hosts) > 1
        self.by_folder = several or self.rng.random() < 0.25
        self.files: dict[str, bytes] = {}
        self.decisive: set[str] = set()

    def put(self, host: Host, name: str, text: str | bytes, *, decisive: bool) -> None:
        path = f"{host.name}/{name}" if self.by_folder else name
        self.files[path] = text if isinstance(text, bytes) else text.encode()
        if decisive:
            self.decisive.add(path)


def files_of(story: Story) -> dict[str, bytes]:
    """All files of the evidence folder, by relative path."""
    rng = story.rng
    folder = _Folder(story)
    if story.fleet.engine in ("packaged", "trtllm") and (story.label.ranks or "stacks" in story.keep):
        story.keep.add("nccl")  # their process titles carry no rank: only NCCL joins a pid to one
    kept = {name for name, chance in CHANCE.items() if name in story.keep or rng.random() < chance}
    ranks = _shown_ranks(story)
    _engine_logs(story, folder)
    for name, write in (("nccl", _nccl), ("stacks", _stacks), ("native", _native), ("threads", _threads)):
        if name in kept:
            write(story, folder, ranks, name in story.keep)
    for host in story.fleet.hosts:
        if "gpu" in kept:
            _gpu(story, folder, host)
        if "ps" in kept and story.states:
            name = rng.choice(("ps.txt", "ps_auxf.txt", f"ps-{host.name}.txt"))
            folder.put(host, name, process_writer.ps(story, host), decisive="ps" in story.keep)
        if "kernel" in kept:
            form = rng.choice(kernel_writer.FORMS if story.fleet.utc_offset_s == 0 else kernel_writer.LOCAL_FORMS)
            name = rng.choice(("dmesg.txt", "kern.log", "kernel.txt", "journal-k.txt"))
            folder.put(host, name, kernel_writer.log_of(story, host, form), decisive="kernel" in story.keep)
    _whole(story, folder, kept)
    for host, name, text in story.files:
        folder.put(host, name, text, decisive=True)
    return _damaged(story, folder)


def _shown_ranks(story: Story) -> tuple[Rank, ...]:
    """Ranks whose own files were kept: those in focus, rank 0, and some others."""
    ranks = story.fleet.ranks
    if len(ranks) <= PER_RANK_MAX:
        return ranks
    others = story.rng.sample(range(len(ranks)), PER_RANK_MAX)
    chosen = sorted({0, *story.focus, *others})
    return tuple(ranks[number] for number in chosen)


def _engine_logs(story: Story, folder: _Folder) -> None:
    rng, fleet = story.rng, story.fleet
    frame = rng.choice(dialect.FRAMES)
    colour = fleet.engine == "vllm" and rng.random() < 0.3
    if fleet.engine == "packaged":
        for rank in fleet.ranks:
            text = dialect.framed(
                rng, sglang_writer.rank_log_of(story, rank), "plain", host=rank.host.name, colour=False
            )
            folder.put(rank.host, f"engine_rank{rank.rank}.log", text, decisive=True)
        return
    writer = {"sglang": sglang_writer.log_of, "vllm": vllm_writer.log_of, "trtllm": trtllm_writer.log_of}[fleet.engine]
    base = rng.choice(("engine.log", "server.log", f"{fleet.engine}.log", "pod.log", "launch.log", "0.log"))
    for host in fleet.hosts:
        lines = writer(story, host)
        if not lines:
            continue
        moved = [(at_s - fleet.utc_offset_s, text) for at_s, text in lines]
        text = dialect.framed(rng, moved, frame, host=host.name, colour=colour)
        name = base if folder.by_folder or len(fleet.hosts) == 1 else f"{host.name}.{base}"
        folder.put(
            host,
            name.replace(".log", ".json") if frame in ("docker", "journal") and rng.random() < 0.5 else name,
            text,
            decisive=True,
        )


def _nccl(story: Story, folder: _Folder, ranks: tuple[Rank, ...], decisive: bool) -> None:
    rng = story.rng
    stamped = story.fleet.nccl_at_least("2.26.0") and rng.random() < 0.3
    pattern = rng.choice(("nccl.{host}.{pid}.log", "nccl.{host}.{pid}", "nccl_{pid}.log", "rank{rank}/nccl.log"))
    for rank in ranks:
        if rank.rank in story.init_missing:
            continue
        name = pattern.format(host=rank.host.name, pid=rank.pid, rank=rank.rank)
        lines = nccl_writer.log_of(story, rank, stamped=stamped)
        lines += [said.text for said in story.said if said.rank is rank and "NCCL WARN" in said.text]
        folder.put(rank.host, name, "\n".join(lines) + "\n", decisive=decisive)


def _stacks(story: Story, folder: _Folder, ranks: tuple[Rank, ...], decisive: bool) -> None:
    rng = story.rng
    as_json = rng.random() < 0.25
    pattern = rng.choice(("pyspy_{rank}.txt", "stacks/{pid}.txt", "pyspy-{title}.txt", "stack.{pid}"))
    together = not as_json and rng.random() < 0.25
    everything: dict[Host, list[str]] = {}
    for rank in ranks:
        state = story.states[rank.rank]
        if not state.alive:
            continue
        title = story.fleet.title(rank).rpartition("_")[2].replace("/", "-")[:12]
        name = pattern.format(rank=rank.rank, pid=rank.pid, title=f"{title}-{rank.rank}")
        dump = stack_writer.pyspy_json if as_json and state.process not in "Tt" else stack_writer.pyspy_text
        if together:
            everything.setdefault(rank.host, []).append(dump(story, rank))
        else:
            folder.put(
                rank.host, name.replace(".txt", ".json") if as_json else name, dump(story, rank), decisive=decisive
            )
    for host, dumps in everything.items():
        folder.put(host, "all_ranks_pyspy.txt", "\n".join(dumps), decisive=decisive)
    if uses_core(story.fleet):
        host = story.fleet.hosts[0]
        folder.put(
            host,
            rng.choice(("pyspy_core.txt", "stacks/core.txt")),
            stack_writer.core_text(story, host),
            decisive=decisive,
        )


def _native(story: Story, folder: _Folder, ranks: tuple[Rank, ...], decisive: bool) -> None:
    rng = story.rng
    dump, pattern = rng.choice(
        ((stack_writer.eu_stack, "eustack_rank{rank}.txt"), (stack_writer.gdb, "gdb/rank{rank}.txt"))
    )
    for rank in ranks:
        state = story.states[rank.rank]
        if state.alive and state.process not in "TtD":
            folder.put(rank.host, pattern.format(rank=rank.rank), dump(story, rank), decisive=decisive)


def _threads(story: Story, folder: _Folder, ranks: tuple[Rank, ...], decisive: bool) -> None:
    if decisive or story.rng.random() < 0.6:
        for rank in ranks:
            if story.states[rank.rank].alive or story.states[rank.rank].process == "Z":
                folder.put(
                    rank.host, f"threads_rank{rank.rank}.txt", process_writer.threads(story, rank), decisive=decisive
                )
        return
    for host in story.fleet.hosts:
        folder.put(host, "threads.txt", process_writer.short_threads(story, host), decisive=False)


def _gpu(story: Story, folder: _Folder, host: Host) -> None:
    rng = story.rng
    decisive = "gpu" in story.keep
    lost = any(story.states[rank.rank].gpu in ("lost", "hot") for rank in story.fleet.on(host))
    form = "csv" if lost or decisive else rng.choice(("csv", "csv", "csv", "table", "dmon"))
    if form == "table":
        folder.put(host, "nvidia-smi.txt", gpu_writer.table(story, host), decisive=False)
    elif form == "dmon":
        folder.put(host, "dmon.txt", gpu_writer.dmon(story, host), decisive=False)
    else:
        name = rng.choice(("gpu.csv", "smi.csv", "nvidia-smi.csv"))
        folder.put(host, name, gpu_writer.csv(story, host, whole=decisive or rng.random() < 0.4), decisive=decisive)


def _whole(story: Story, folder: _Folder, kept: set[str]) -> None:
    """Sources of the whole engine."""
    rng, host = story.rng, story.fleet.hosts[0]
    if "ras" in kept and story.fleet.nccl_at_least("2.24.0") and not story.init_open and story.calls:
        as_json = story.fleet.nccl_at_least("2.28.7") and rng.random() < 0.4
        text = ras_writer.as_json(story) if as_json else ras_writer.text(story)
        folder.put(
            host, "ras.json" if as_json else rng.choice(("ras.txt", "ncclras.txt")), text, decisive="ras" in story.keep
        )
    if "metrics" in kept and story.counters and story.fleet.engine in ("sglang", "vllm"):
        pattern = rng.choice(("metrics.{n}.prom", "scrape{n}.txt", "m{n}.prom"))
        for which in (0, 1):
            text = host_writer.scrape(story, which)
            folder.put(host, pattern.format(n=which + 1), text, decisive="metrics" in story.keep)
    if "environment" in kept:
        folder.put(host, "environ.txt", host_writer.environment(), decisive=False)
    if story.probes:
        folder.put(host, "health.csv", host_writer.health_csv(story), decisive="health" in story.keep)


def _damaged(story: Story, folder: _Folder) -> dict[str, bytes]:
    rng: Random = story.rng
    files = dict(folder.files)
    if rng.random() < DIRTY:
        spare = sorted(name for name in files if name not in folder.decisive)
        for name in rng.sample(spare, min(len(spare), 2)):
            files[name] = dialect.cut_tail(rng, files[name].decode()).encode()
        files[rng.choice(("core.2107", "heap.bin"))] = bytes(rng.randrange(256) for _ in range(600))
        files["notes.txt"] = b"collected by hand, some hosts were not reachable\n"
    if rng.random() < 0.3:
        files = dialect.packed(rng, files, keep_plain=0.5)
    return files
