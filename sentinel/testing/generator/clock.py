"""Times as the programs print them; all from seconds since the epoch on the local wall clock read as UTC."""

from datetime import UTC, datetime


def _at(at_s: float) -> datetime:
    return datetime.fromtimestamp(at_s, UTC)


def full(at_s: float) -> str:
    """SGLang, NCCL: 2026-11-29 10:00:00."""
    return f"{_at(at_s):%Y-%m-%d %H:%M:%S}"


def month_day(at_s: float) -> str:
    """vLLM: 11-29 10:00:00."""
    return f"{_at(at_s):%m-%d %H:%M:%S}"


def trtllm(at_s: float) -> str:
    """TensorRT-LLM: 11/29/2026-10:00:00."""
    return f"{_at(at_s):%m/%d/%Y-%H:%M:%S}"


def day(at_s: float) -> str:
    """Time of day: 10:00:00."""
    return f"{_at(at_s):%H:%M:%S}"


def smi(at_s: float) -> str:
    """nvidia-smi's timestamp column: 2026/11/29 10:00:00.000."""
    return f"{_at(at_s):%Y/%m/%d %H:%M:%S}.{int(at_s * 1000) % 1000:03d}"


def dmesg(at_s: float) -> str:
    """dmesg -T: Sun Nov 29 10:00:00 2026 (the day padded with a space)."""
    return f"{_at(at_s):%a %b} {_at(at_s).day:2d} {_at(at_s):%H:%M:%S %Y}"


def syslog(at_s: float) -> str:
    """Classic syslog: Nov 29 10:00:00 (the day padded with a space)."""
    return f"{_at(at_s):%b} {_at(at_s).day:2d} {_at(at_s):%H:%M:%S}"


def glog(at_s: float) -> str:
    """torch: 1129 10:00:00.000000000."""
    return f"{_at(at_s):%m%d %H:%M:%S}.{int(at_s * 1e6) % 1_000_000:06d}000"


def rfc3339(at_s: float) -> str:
    """Container runtimes: 2026-11-29T10:00:00.123456789Z."""
    return f"{_at(at_s):%Y-%m-%dT%H:%M:%S}.{int(at_s * 1e6) % 1_000_000:06d}789Z"
