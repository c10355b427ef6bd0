"""What a blocked thread waits for, from the number and arguments of its system call (x86-64 and arm64).

glibc's contended mutex waits with FUTEX_WAIT on the value 2 ("locked, with waiters"); its condition variables and
semaphores, and with them every idle pool thread and CPython's locks, wait with FUTEX_WAIT_BITSET. So the operation and
the value tell a thread that wants a mutex from one that has nothing to do. Numbers: Linux 5 and 6.
"""

from typing import Literal

from sentinel.model.observation import ThreadRow

Wait = Literal[
    "running", "mutex", "condition", "file_read", "read", "aio", "open", "poll", "sleep", "pause", "ioctl", "other"
]
"""`file_read`: a read or sync of a file. `read`: a read of something that need not be a file (pipe, socket).
`aio`: a wait for asynchronous I/O, which an idle I/O thread does too."""

_X86: dict[int, str] = {
    0: "read", 17: "pread", 19: "read", 295: "pread", 327: "pread", 2: "open", 257: "open", 437: "open", 208: "aio",
    333: "aio", 426: "aio", 202: "futex", 7: "poll", 271: "poll", 23: "poll", 270: "poll", 232: "poll", 281: "poll",
    441: "poll", 35: "sleep", 230: "sleep", 34: "pause", 16: "ioctl", 74: "fsync", 75: "fsync",
}  # fmt: skip
_ARM: dict[int, str] = {
    63: "read", 67: "pread", 65: "read", 69: "pread", 286: "pread", 56: "open", 437: "open", 4: "aio", 292: "aio",
    426: "aio", 98: "futex", 73: "poll", 72: "poll", 22: "poll", 441: "poll",
    101: "sleep", 115: "sleep", 29: "ioctl", 82: "fsync", 83: "fsync",
}  # fmt: skip

_FUTEX_COMMAND = 0x7F
"""Mask that takes PRIVATE (0x80) and CLOCK_REALTIME (0x100) off the futex operation."""
_FUTEX_WAIT, _FUTEX_LOCK_PI, _FUTEX_LOCK_PI2 = 0, 6, 13

_STORAGE = (
    "io_schedule", "folio_wait", "wait_on_page", "filemap_", "blk_", "blkdev_", "dio_", "iomap_", "ext4_", "xfs_",
    "btrfs_", "nfs_", "nfs4_", "rpc_wait", "fuse_", "ceph_", "jbd2_", "nvme_", "wait_for_completion_io", "rq_qos_wait",
    "bit_wait_io", "md_", "dm_", "lustre_", "cl_sync", "cifs_", "smb2_", "vfs_fsync", "wait_for_partner",
)  # fmt: skip
"""Beginnings of kernel functions that wait for a file system, a block device, or the other end of a FIFO's open."""

_RECLAIM = (
    "shrink_", "try_to_free_", "do_try_to_free", "throttle_direct_reclaim", "balance_dirty_pages", "do_swap_page",
    "swap_read", "swapin_", "compact_zone", "compaction_", "mem_cgroup_handle_over_high", "mem_cgroup_oom", "isolate_",
    "congestion_wait", "__alloc_pages_slowpath", "__alloc_pages_direct_", "reclaim_throttle", "rmap_walk",
)  # fmt: skip
"""Beginnings of kernel functions that look for free memory."""


def wait_of(row: ThreadRow, arch: str) -> Wait:
    """What the thread waits for; `other` when its call is unknown or says nothing."""
    if row.running or (row.syscall < 0 and row.state == "R"):
        return "running"
    call = (_ARM if arch == "aarch64" else _X86).get(row.syscall)
    if call == "futex":
        return _futex(row.args)
    if call in ("pread", "fsync"):
        return "file_read"
    if call == "aio":
        return "file_read" if row.state == "D" or waits_for_storage(row) else "aio"
    if call == "read":
        return "file_read" if waits_for_storage(row) or row.state == "D" else "read"
    if call in ("open", "poll", "sleep", "pause", "ioctl"):
        return call  # type: ignore[return-value]
    return "file_read" if row.state == "D" and waits_for_storage(row) else "other"


def _futex(args: tuple[int, ...]) -> Wait:
    if len(args) < 3:
        return "other"
    command = args[1] & _FUTEX_COMMAND
    if command in (_FUTEX_LOCK_PI, _FUTEX_LOCK_PI2) or (command == _FUTEX_WAIT and args[2] == 2):
        return "mutex"
    return "condition"


def waits_for_storage(row: ThreadRow) -> bool:
    """Whether the thread's kernel stack or wait channel is that of a storage wait."""
    return not reclaims(row) and is_storage_wait((row.wchan, *row.kernel_stack[:8]))


def is_storage_wait(functions: tuple[str, ...]) -> bool:
    """Whether any of these kernel functions waits for storage."""
    return any(function.startswith(_STORAGE) for function in functions)


def reclaims(row: ThreadRow) -> bool:
    """Whether the thread looks for free memory instead of doing its work."""
    return any(function.startswith(_RECLAIM) for function in (row.wchan, *row.kernel_stack))
