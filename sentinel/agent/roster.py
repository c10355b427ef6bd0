"""Which sources are asked: those of the host, and those of one engine, as far as the configuration wants them."""

from collections.abc import Callable, Container, Iterator
from functools import partial

from sentinel.agent.ring import Ring
from sentinel.agent.source import Source
from sentinel.agent.sources.block import BlockDevices
from sentinel.agent.sources.engine_log import EngineLog, log_name, logs_of
from sentinel.agent.sources.environment import ProcessSettings
from sentinel.agent.sources.gpu import Gpus
from sentinel.agent.sources.kernel import KernelRecords
from sentinel.agent.sources.loads import Loads
from sentinel.agent.sources.metrics import Metrics
from sentinel.agent.sources.nccl_files import NcclFiles
from sentinel.agent.sources.pressure import HostPressure
from sentinel.agent.sources.processes import Processes
from sentinel.agent.sources.rdma import RdmaDevices
from sentinel.agent.sources.store_page import StorePages
from sentinel.config import Config
from sentinel.engines import ADAPTERS
from sentinel.model.engine import Engine

Built = Iterator[tuple[str, Callable[[], Source]]]
OF_PROCESSES = (Processes, NcclFiles, ProcessSettings, StorePages)
"""Sources that look at an engine's processes and are told when these change."""


def host_sources(config: Config, ring: Ring) -> Iterator[Source]:
    """Sources of the host, which belong to no engine."""
    wanted = config.sources
    if wanted.pressure:
        yield HostPressure()
    if wanted.kernel_log:
        yield KernelRecords(ring)
    if wanted.gpu:
        yield Gpus(ring, 1.0 / config.timing.time_scale)
    if wanted.rdma:
        yield RdmaDevices(ring)
    if wanted.block:
        yield BlockDevices(ring)


def engine_sources(
    config: Config, engine: Engine, ring: Ring, wonders: Callable[[float], bool], followed: Container[str] = ()
) -> Built:
    """Name and builder of each source of an engine; `wonders` tells whether its load is worth a question.

    Logs that are `followed` already have one, whoever writes them now.
    """
    wanted = config.sources
    for log, writer in logs_of(engine).items() if wanted.engine_log else ():
        if log not in followed:
            yield log_name(engine, writer), partial(EngineLog, engine, log, ring, writer=writer)
    if wanted.metrics and engine.url is not None:
        every_s = config.timing.scrape_every_s / config.timing.time_scale
        yield f"metrics:{engine.key}", partial(Metrics, engine, ring, every_s)
        question = next((adapter.load for adapter in ADAPTERS if adapter.name == engine.adapter), None)
        if question is not None:
            yield f"loads:{engine.key}", partial(Loads, engine, question, ring, wonders, every_s / 2)
    if wanted.processes:
        yield f"processes:{engine.key}", partial(Processes, engine)
        yield f"settings:{engine.key}", partial(ProcessSettings, engine)
    if wanted.nccl_debug:
        yield f"nccl:{engine.key}", partial(NcclFiles, engine)
    if wanted.store_page:
        yield f"store:{engine.key}", partial(StorePages, engine)
