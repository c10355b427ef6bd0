"""`python -m sentinel.helper.kernel_stacks`: the optional service that tells kernel stacks, and nothing else.

/proc/PID/task/TID/stack wants CAP_SYS_ADMIN, which the helper must not have; so it is a process of its own, off unless
an operator enables `sentinel-kstack.socket`, with one verb and the same rules about who may ask and about whom.
"""

import sys

from sentinel.helper.__main__ import main
from sentinel.helper.server import Answer, Target, Verbs, one_line, threads_of


def kernel_stacks(target: Target) -> Answer:
    """The kernel stack of every thread, a line each; threads that run in user space have none."""
    tasks = f"/proc/{target.pid}/task"
    try:
        stacks = {tid: one_line(f"{tasks}/{tid}/stack") for tid in threads_of(target)}
    except OSError as error:
        return Answer(why=f"{tasks}: {error.strerror}")
    if not any(stacks.values()):
        return Answer(why="the kernel shows no stack: CAP_SYS_ADMIN is missing, or every thread runs in user space")
    return Answer(data="".join(f"{tid} ; stack={stack}\n" for tid, stack in stacks.items()).encode())


VERBS: Verbs = {"kernel_stacks": kernel_stacks}


if __name__ == "__main__":
    sys.exit(main(VERBS))
