"""The catalogue of named facts, in one explicit list. Rules may use these names and no others."""

from sentinel.core.fact import FactSpec
from sentinel.core.facts import (
    call_order_ranks,
    collectives,
    engine,
    gpu,
    gpu_power,
    kernel,
    memory,
    network,
    phases,
    process,
    progress,
    stack_groups,
    stack_threads,
    stacks,
    store,
    workload,
)

CATALOGUE: tuple[FactSpec, ...] = (
    *progress.FACTS,
    *phases.FACTS,
    *workload.FACTS,
    *engine.FACTS,
    *stacks.FACTS,
    *stack_groups.FACTS,
    *stack_threads.FACTS,
    *collectives.FACTS,
    *call_order_ranks.FACTS,
    *network.FACTS,
    *gpu.FACTS,
    *gpu_power.FACTS,
    *process.FACTS,
    *kernel.FACTS,
    *memory.FACTS,
    *store.FACTS,
)
NAMES: tuple[str, ...] = tuple(spec.name for spec in CATALOGUE)
