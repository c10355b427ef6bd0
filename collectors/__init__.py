"""All parsers, listed by hand: a document parser earlier in the list wins when two claim the same document."""

from sentinel.collector import Parser
from sentinel.collectors import (
    cuda_gdb,
    eu_stack,
    faulthandler,
    gdb_stacks,
    kernel_log,
    nccl_log,
    nvidia_dmon,
    nvidia_smi_csv,
    nvidia_smi_query,
    nvidia_smi_table,
    process_table,
    py_spy,
    pystack,
    sglang_log,
)

ALL: tuple[Parser, ...] = (
    *nccl_log.PARSERS,
    *py_spy.PARSERS,
    pystack.PARSER,
    eu_stack.PARSER,
    cuda_gdb.PARSER,
    gdb_stacks.PARSER,
    faulthandler.PARSER,
    sglang_log.PARSER,
    kernel_log.PARSER,
    nvidia_dmon.PARSER,
    nvidia_smi_csv.PARSER,
    nvidia_smi_query.PARSER,
    nvidia_smi_table.PARSER,
    process_table.PARSER,
)
