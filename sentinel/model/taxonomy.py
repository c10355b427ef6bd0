"""What each verdict class means in one or two sentences; `docs/taxonomy.md` is written from here and the rules."""

from collections.abc import Mapping

MEANINGS: Mapping[str, str] = {
    "none": "Steps or tokens go on to the end of the evidence, or the engine ended on request after its work.",
    "quiet.idle": "Nobody waits for an answer. An engine without requests prints nothing and that is as it should be.",
    "quiet.paused": (
        "Somebody told the engine to pause or sleep (weight update, admin call) and the call that ends it has not "
        "come. Work may be queued; it waits on purpose."
    ),
    "busy.boot": "Processes start, weights load or ranks meet, and something measurable advances.",
    "busy.graph_capture": "The engine records its CUDA graphs before it serves; GPUs and compilers are at work.",
    "busy.jit": (
        "A kernel is compiled at run time. The compiling rank is late, its peers spin in the collective that it will "
        "join; nobody is broken."
    ),
    "busy.prefill": "One step is long because its prompt is: GPUs compute at high power and tokens follow.",
    "hang.host_callback": (
        "A function of the host that a GPU stream has to run first (a row gather, a ctypes or numba callback) does "
        "not return. The rank enqueued everything; its GPU waits behind the callback."
    ),
    "hang.storage": (
        "A rank waits in the kernel for a disk or a file server: uninterruptible sleep, hung tasks, a page fault that "
        "is never served."
    ),
    "hang.python": (
        "The interpreter of a rank is blocked before it enqueues its next collective: a lock, a native call that "
        "keeps the interpreter lock, a blocking call. The rank has fewer enqueues than its peers, on every "
        "communicator."
    ),
    "hang.stopped": "A process is stopped by a signal, held by a debugger, or frozen by a control group.",
    "hang.memory": "A host has no free memory and a rank looks for some in reclaim, compaction or swap, without end.",
    "hang.rank_divergence": (
        "Ranks enqueued different collectives, or one enqueued an operation that the others did not: a size, a type, "
        "an order, one call more or less. A control-plane collective that only some ranks entered counts too."
    ),
    "hang.collective_stuck": (
        "Every rank entered the same collective, no transport error is seen, and it does not end. Nobody can be "
        "accused."
    ),
    "hang.network": (
        "A transport operation under a collective failed while all processes lived, without a sign of failed hardware "
        "on a named host."
    ),
    "hang.device_spin": (
        "A kernel that is not NCCL's (custom all-reduce, attention, persistent kernel) never ends on a GPU."
    ),
    "hang.comm_init": (
        "A communicator or rendezvous began at start and is not finished: addresses, interfaces, GIDs, a rank that "
        "never came."
    ),
    "hang.scheduler": (
        "The engine's control plane waits at one host place on every rank; GPUs are idle and work is queued."
    ),
    "hang.kv_pool": (
        "Requests wait for room in the KV pool that will never be free: too large a prompt, or the same request "
        "retracted again and again."
    ),
    "hang.kv_transfer": (
        "KV blocks that should come from another engine, a cache or a disk do not come, although the scheduler's loop "
        "runs."
    ),
    "hang.grammar": (
        "Compiling the grammar or JSON schema of a request does not end; requests with a schema wait, often only these."
    ),
    "hang.frontend": (
        "The API, tokenizer or detokenizer process answers nobody; the engine behind it is idle and healthy."
    ),
    "crash.oom": (
        "The kernel or a control group killed a rank for want of memory; its peers wait for a process that is gone."
    ),
    "crash.rank_exit": (
        "A rank ended (exception, signal, exit) before anything else failed; what its peers report afterwards is a "
        "consequence."
    ),
    "fault.gpu": (
        "A GPU, its memory or its driver failed before or at the stall. Errors that come only after a process was "
        "killed are consequences and are left out."
    ),
    "fault.nic": "A network adapter, its port or its link shows a fault on a named host before the stall.",
    "slow.straggler": (
        "Steps advance, clearly slower than this engine's own past, or one rank lets all others wait in each."
    ),
    "slow.recovered": "Progress stopped for longer than its limit with work outstanding, and went on by itself.",
    "unknown": "The engine is stalled, or nothing shows whether it is, and the evidence does not decide why.",
}
"""Class -> meaning, in the order of `verdict.CLASSES`."""
