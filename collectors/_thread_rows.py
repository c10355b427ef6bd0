"""One thread from the files of /proc/PID/task/TID: `stat`, `wchan`, `syscall`, `stack`, `comm` (Linux procfs)."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from sentinel.model.observation import ThreadRow

_KERNEL_FRAME = re.compile(r"\[<[0-9a-fA-Fx]+>\] ([A-Za-z_][\w.]{0,80})")
_ARM = ("el0_svc", "el0t_64", "__arm64_sys_", "el0_da", "invoke_syscall")
_X86 = ("x64_sys", "entry_SYSCALL_64", "asm_exc_page_fault")
FRAMES_KEPT = 24


def kernel_frames(text: str) -> tuple[str, ...]:
    """Function names of a kernel stack, innermost first.

    >>> kernel_frames("[<0>] futex_do_wait+0x48/0x90 | [<0>] __futex_wait+0x9c/0x110")
    ('futex_do_wait', '__futex_wait')
    """
    return tuple(_KERNEL_FRAME.findall(text)[:FRAMES_KEPT])


def syscall_of(text: str) -> tuple[int, tuple[int, ...], bool]:
    """(number, six arguments, running) of `/proc/PID/task/TID/syscall`; -1 when blocked outside a call or unknown."""
    words = text.split()
    if words[:1] == ["running"]:
        return -1, (), True
    if not words or not re.fullmatch(r"\d{1,4}", words[0]):
        return -1, (), False
    args = tuple(int(word, 16) for word in words[1:7] if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", word))
    return int(words[0]), args, False


def stat_of(text: str) -> tuple[str, str, int | None]:
    """(comm, state, CPU ticks) of a `stat` line; the name may hold spaces and parentheses."""
    before, _, after = text.rpartition(")")
    words = after.split()
    state = words[0] if words and len(words[0]) == 1 else "?"
    ticks = None
    if len(words) > 12 and words[11].isdecimal() and words[12].isdecimal():
        ticks = int(words[11][:18]) + int(words[12][:18])
    return before.partition("(")[2][:64], state, ticks


@dataclass(slots=True)
class Draft:
    """A thread of which some files were read so far."""

    tid: int
    comm: str = ""
    state: str = "?"
    wchan: str = ""
    syscall: int = -1
    args: tuple[int, ...] = ()
    running: bool = False
    cpu_ticks: int | None = None
    stack: list[str] = field(default_factory=list)

    def note(self, file: str, text: str) -> None:
        """Take the content of one file of the thread's directory."""
        if file == "comm":
            self.comm = text.strip()[:64]
        elif file == "wchan":
            self.wchan = "" if text.strip() in ("0", "-") else text.strip()[:80]
        elif file == "syscall":
            self.syscall, self.args, self.running = syscall_of(text[:512])
        elif file == "stat":
            comm, self.state, self.cpu_ticks = stat_of(text[:2048])
            self.comm = self.comm or comm
        elif file == "stack" and len(self.stack) < FRAMES_KEPT:
            self.stack += kernel_frames(text)

    def row(self) -> ThreadRow:
        return ThreadRow(
            tid=self.tid, comm=self.comm, state=self.state, wchan=self.wchan, syscall=self.syscall, args=self.args,
            running=self.running, cpu_ticks=self.cpu_ticks, kernel_stack=tuple(self.stack[:FRAMES_KEPT]),
        )  # fmt: skip


def arch_of(rows: Iterable[ThreadRow]) -> Literal["x86_64", "aarch64"]:
    """Machine of the system call numbers: what kernel stacks say, else what a futex wait is called by."""
    arm = x86 = 0
    for row in rows:
        frames = " ".join(row.kernel_stack)
        arm += any(sign in frames for sign in _ARM)
        x86 += any(sign in frames for sign in _X86)
        if "futex" in row.wchan:
            arm += row.syscall == 98
            x86 += row.syscall == 202
    return "aarch64" if arm > x86 else "x86_64"
