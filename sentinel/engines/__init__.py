"""Engine adapters: the only code that knows an engine's flags, process titles, endpoints and environment."""

from sentinel.engines import packaged, sglang, vllm
from sentinel.engines.adapter import Adapter

ADAPTERS: tuple[Adapter, ...] = (sglang.ADAPTER, vllm.ADAPTER, packaged.ADAPTER)
