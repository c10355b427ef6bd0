"""Which function of which module means which place: data for `places.py`, nothing else.

Names are those of SGLang 0.4 to 0.5.23, vLLM 0.8 to 0.33, TensorRT-LLM 0.20 to 1.2, torch 2.4 to 2.14, NCCL 2.18 to
2.30, CUDA 12 and 13, and the libraries around them. A file fragment is compared with the path as the tool printed it,
which may be shortened down to the base name; `*` is any file. Generic waits stand in `wait_tables.py`.
"""

from typing import NamedTuple


class Rule(NamedTuple):
    """`functions` mean `place` in a file one of whose path components begins one of `files` (empty: any file)."""

    place: str
    functions: frozenset[str]
    files: tuple[str, ...] = ()


class FileRule(NamedTuple):
    """Any function, except `but`, means `place` in a file one of whose path components begins `file`."""

    file: str
    place: str
    but: frozenset[str]


def read_rules(table: str) -> tuple[Rule, ...]:
    """Rules of a table: `place in FRAGMENTS: FUNCTIONS`, continued on indented lines; `#` begins a comment.

    >>> read_rules("load in *: load_model")
    (Rule(place='load', functions=frozenset({'load_model'}), files=()),)
    """
    joined: list[str] = []
    for line in table.strip().splitlines():
        if line.startswith(" "):
            joined[-1] += line
        elif line and not line.startswith("#"):
            joined.append(line)
    rules = []
    for line in joined:
        head, _, functions = line.partition(":")
        place, _, files = head.partition(" in ")
        fragments = () if files == "*" else tuple(files.split())
        rules.append(Rule(place, frozenset(functions.split()), fragments))
    return tuple(rules)


def read_file_rules(table: str) -> tuple[FileRule, ...]:
    """Rules of a table: `place: FRAGMENTS [but FUNCTIONS]`."""
    rules = []
    for line in table.strip().splitlines():
        place, _, rest = line.partition(": ")
        files, _, but = rest.partition(" but ")
        rules += [FileRule(file, place, frozenset(but.split())) for file in files.split()]
    return tuple(rules)


DECISIVE = read_rules("""
# Waiting for the GPU.
gpu_wait in cuda/streams.py cuda/__init__.py accelerator/__init__.py xpu/: synchronize query
gpu_wait in *: _cuda_synchronize device_synchronize _local_scalar_dense_cuda THCPModule_cudaSynchronize
gpu_wait in gpu_model_runner.py gpu/async_utils.py worker/gpu/: get_output _bookkeeping_sync _to_list
gpu_wait in *: decoderSync waitForDecoder
# Host code of a collective; most functions of distributed_c10d.py count as one too (see DECISIVE_FILES).
collective in device_communicators/ parallel_state.py pynccl.py cpu_communicator.py cuda_communicator.py all2all.py
    custom_all_reduce quick_all_reduce symm_mem communication_op.py base_device_communicator communicator.py:
    all_reduce all_gather reduce_scatter reduce_scatter_tensor broadcast send recv reduce_scatterv all_gatherv gather
    all_gather_into_tensor all_to_all all_to_all_single barrier dispatch combine broadcast_tensor_dict broadcast_object
    send_tensor_dict recv_tensor_dict send_object recv_object all_gather_object broadcast_object_list
collective in rehearsal/ sentinel_engine/ collective.py collectives.py: all_reduce all_gather broadcast barrier
collective in deep_ep deepep mooncake_ep pplx flashinfer/comm: dispatch combine low_latency_dispatch
    low_latency_combine internode_dispatch internode_combine intranode_dispatch intranode_combine
collective in *: ncclAllReduce ncclAllGather ncclReduceScatter ncclBroadcast ncclReduce ncclSend ncclRecv ncclAlltoAll
    ncclGroupEnd ncclGroupStart ncclGather ncclScatter ncclGroupEndInternal groupLaunch
collective in *: _synchronize_dp_ranks coordinate_batch_across_dp has_unfinished_dp num_tokens_across_dp
    get_dp_padding prepare_mlp_sync_batch prepare_mlp_sync_batch_raw prepare_dp_attn_batch
    _has_global_unfinished_reqs
collective in *: shm_allreduce shm_allgather shm_send_tensor_list shm_recv_tensor_list shm_allreduce_sum shm_cc_loop
collective in _torch/distributed _mnnvl mpi4py: allgather tp_allgather pp_allgather tp_gather cp_allgather allreduce
    bcast broadcast barrier tp_barrier tp_cp_allgather recv_object send_object recv_tensor_list gather recv send
# The scheduler's request broadcast.
control_broadcast in *: broadcast_pyobj _broadcast_reqs_across_ranks broadcast_reqs point_to_point_pyobj
    _pp_recv_pyobj_from_prev_stage broadcast_requests _broadcast_new_requests _broadcast_requests
    getNewReqWithIds fetchNewRequests
# Rendezvous and communicator set-up.
comm_init in *: ncclCommInitRank ncclCommInitRankConfig ncclCommInitRankScalable ncclCommInitAll ncclGetUniqueId
    ncclCommInitRankDev ncclCommInitRankFunc ncclAsyncJobMain initTransportsRank
comm_init in distributed_c10d.py device_mesh.py torch/distributed distributed/utils.py: init_process_group new_group
    new_subgroups split_group _new_process_group_helper _store_based_barrier _new_group_with_tag init_device_mesh
comm_init in *: _create_c10d_store _env_rendezvous_handler _tcp_rendezvous_handler next_rendezvous
    waitForWorkers doWait TCPStore connect_store TCPClient stateless_init_torch_distributed_process_group
    stateless_init_process_group init_gloo_process_group
# Host-side NCCL calls that are no collective and no init.
nccl_host in *: ncclCommWindowRegister ncclCommWindowDeregister ncclCommRegister ncclCommDeregister ncclMemAlloc
    ncclMemFree ncclCommSplit ncclCommShrink ncclCommGrow ncclCommAbort ncclCommDestroy ncclCommFinalize
    ncclDevCommCreate ncclDevCommDestroy ncclCommSuspend ncclCommResume register_comm_window_raw
    register_comm_window
# The driver, blocking the caller.
native_call in *: cuLaunchHostFunc cudaLaunchHostFunc cuStreamAddCallback cudaStreamAddCallback launch_hostfunc
native_call in torch/: _host_emptyCache pin_memory cudaHostRegister cudaHostUnregister
# Compiling.
compile in triton/: compile _do_compile make_cubin make_ptx make_llir make_ttgir make_ttir ast_to_ttir do_bench
    _bench benchmark autotune compile_module_from_src
compile in deep_gemm/ tilelang cute_dsl cutlass: compile build compile_kernel
compile in *: _compile_deep_gemm_one_type_all _maybe_compile_deep_gemm_one_type_all deep_gemm_execution_hook
    _compile_one_deepgemm_warmup run_ninja_build _run_ninja_build _write_ninja_file_and_build_library load_inline
    build_and_load_ninja load_jit build_and_load compile_to_module codegen_and_compile compile_fx compile_fx_inner
    aot_autograd compile_inner _compile_inner convert_frame_assert aot_module_simplified bw_compiler fw_compiler
compile in compilation/: compile
compile in _inductor/: autotune_to_one_config benchmark_all_configs precompile _precompile_worker _make_launchers
    coordinate_descent_tuning wait_for_compile
compile in torch/_dynamo/__init__.py: reset _compile
compile in autotuner: autotune choose_one tune warmup_autotune _benchmark
# The collector of garbage.
gc in *: gc_collect_main gc_collect_generations gc_collect_with_callback gc_collect_region gc_collect_young
    gc_collect_full gc_collect_increment gc_collect_internal gc_collect PyGC_Collect Py_RunGC deduce_unreachable
    subtract_refs move_unreachable untrack_tuples delete_garbage
# Grammars and JSON schemas.
grammar in xgrammar outlines guidance structured_output constrained lmformatenforcer grammar backend_xgrammar
    backend_guidance backend_outlines base_grammar_backend llguidance_backend: compile_grammar _create_grammar
    _async_create_grammar compile_json_schema compile_regex compile_structural_tag dispatch_json
    dispatch_regex dispatch_ebnf dispatch_structural_tag init_value_impl _init_value_dispatch
    get_cached_or_future_value fill_next_token_bitmask fill_vocab_mask grammar_bitmask
# Loading weights.
load in *: load_model load_weights get_model get_all_weights get_weights_iterator _get_weights_iterator
    download_weights safetensors_weights_iterator pt_weights_iterator np_cache_weights_iterator
    fastsafetensors_weights_iterator multi_thread_safetensors_weights_iterator runai_safetensors_weights_iterator
    load_weights_and_postprocess snapshot_download hf_hub_download _prefetch_all_checkpoints prefetch_files
    process_weights_after_loading load_weights_from_remote buffered_multi_thread_safetensors_weights_iterator
pause in *: _wait_until_resumed wait_for_resume wait_until_resumed wait_for_unpause
""")

DECISIVE_FILES = read_file_rules("""
collective: distributed_c10d.py but destroy_process_group get_rank get_world_size is_initialized
compile: _dynamo/convert_frame.py _dynamo/symbolic_convert.py _dynamo/output_graph.py _dynamo/variables/
compile: _inductor/graph.py _inductor/scheduler.py _inductor/compile_fx.py _inductor/codegen/ _inductor/codecache.py
compile: _inductor/async_compile.py _inductor/select_algorithm.py _inductor/lowering.py _inductor/fx_passes/
compile: _inductor/compile_worker/ but _read_thread
compile: _functorch/aot_autograd.py _functorch/partitioners.py utils/cpp_extension.py utils/file_baton.py
compile: flashinfer/jit/ deep_gemm/jit/ tvm_ffi/cpp
compile: triton/compiler/ but __getattribute__ __getattr__ launch_metadata __getitem__ runner _init_handles
compile: triton/backends/ but __call__ load_binary get_current_device is_active get_device_properties
grammar: xgrammar/ outlines/ outlines_core/ llguidance/ lmformatenforcer/
native_call: cuda/memory.py
load: safetensors/ model_loader/ huggingface_hub/ torch/serialization.py
kv_transfer: kv_connector/ but __init__ _get_kv_connector_output maybe_get_kv_connector_output
kv_transfer: lmcache/ mooncake/ nixl/ nixl_connector common/conn.py
""")
"""Modules of which nearly every function is decisive."""
