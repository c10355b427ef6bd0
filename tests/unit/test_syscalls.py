"""What a blocked thread waits for, from its system call."""

import pytest

from sentinel.core.syscalls import reclaims, wait_of, waits_for_storage
from sentinel.model.observation import ThreadRow


def row(number: int, *args: int, state: str = "S", wchan: str = "", stack: tuple[str, ...] = ()) -> ThreadRow:
    return ThreadRow(tid=1, syscall=number, args=args, state=state, wchan=wchan, kernel_stack=stack)


@pytest.mark.parametrize(
    ("number", "arch", "args", "wait"),
    [
        (202, "x86_64", (0x10, 0x80, 2), "mutex"),
        (202, "x86_64", (0x10, 0x0, 2), "mutex"),
        (202, "x86_64", (0x10, 0x86, 0), "mutex"),
        (202, "x86_64", (0x10, 0x189, 0), "condition"),
        (202, "x86_64", (0x10, 0x109, 2), "condition"),
        (202, "x86_64", (0x10, 0x80, 7), "condition"),
        (98, "aarch64", (0x10, 0x80, 2), "mutex"),
        (98, "x86_64", (0x10, 0x80, 2), "other"),
        (17, "x86_64", (3, 0, 0), "file_read"),
        (67, "aarch64", (3, 0, 0), "file_read"),
        (0, "x86_64", (3, 0, 0), "read"),
        (257, "x86_64", (3, 0, 0), "open"),
        (56, "aarch64", (3, 0, 0), "open"),
        (7, "x86_64", (3, 0, 0), "poll"),
        (73, "aarch64", (3, 0, 0), "poll"),
        (230, "x86_64", (3, 0, 0), "sleep"),
        (34, "x86_64", (), "pause"),
        (208, "x86_64", (), "aio"),
        (16, "x86_64", (), "ioctl"),
        (-1, "x86_64", (), "other"),
    ],
)
def test_the_call_and_its_arguments_tell_the_wait(number: int, arch: str, args: tuple[int, ...], wait: str) -> None:
    """False: every idle pool thread would look like a deadlock, or a deadlock like an idle pool."""
    assert wait_of(row(number, *args), arch) == wait


def test_a_plain_read_is_a_file_read_only_when_it_waits_for_storage() -> None:
    """False: a thread that listens on a pipe would be blamed on the disk."""
    assert wait_of(row(0, 3, wchan="pipe_read"), "x86_64") == "read"
    assert wait_of(row(0, 3, wchan="folio_wait_bit_common"), "x86_64") == "file_read"


def test_reclaim_is_not_storage() -> None:
    """False: a host without memory would be sent to the storage team."""
    swapping = row(-1, state="D", wchan="folio_wait_bit_common", stack=("folio_wait_bit_common", "do_swap_page"))

    assert reclaims(swapping)
    assert not waits_for_storage(swapping)
