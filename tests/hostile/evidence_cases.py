"""What the tests with hostile evidence share: a good log, archives, and a load in little memory."""

import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path

from sentinel.evidence.load import Loaded
from sentinel.model.observation import Decode

MIB = 1 << 20


def decode(n: int) -> str:
    return (
        f"[2026-11-29 10:{n // 60 % 60:02d}:{n % 60:02d} TP0] Decode batch, #running-req: 3, #token: {1000 + n}, "
        "token usage: 0.01, cuda graph: True, gen throughput (token/s): 143.90, #queue-req: 0\n"
    )


ENGINE = "".join(decode(n) for n in range(6))


def good(loaded: Loaded) -> bool:
    """Whether the good log was read completely."""
    mine = [seen for seen in loaded.observations if seen.origin.file == "engine.log"]
    return [seen.tokens for seen in mine if isinstance(seen, Decode)] == [1000, 1001, 1002, 1003, 1004, 1005]


def why(loaded: Loaded, file: str) -> str:
    """All reasons given for a file."""
    return "; ".join(skip.why for skip in loaded.skipped if skip.file == file)


def tar_with(*members: tarfile.TarInfo, data: bytes = b"") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member in members:
            if member.isreg():
                member.size = len(data)
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return out.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


LIMITED = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
from sentinel.evidence.load import load
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
loaded = load(sys.argv[1])
print(json.dumps({
    "grown_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before,
    "observations": len(loaded.observations),
    "skipped": [[skip.file, skip.why] for skip in loaded.skipped],
}))
"""


def load_limited(folder: Path, address_space: int = 700 * MIB) -> tuple[int, int, dict[str, str]]:
    """Load in a process whose address space is limited: (KiB that memory grew by, observations, skipped)."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder), str(address_space)], capture_output=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    told = json.loads(done.stdout)
    skipped: dict[str, str] = {}
    for file, reason in told["skipped"]:
        skipped[file] = f"{skipped[file]}; {reason}" if file in skipped else reason
    return told["grown_kib"], told["observations"], skipped
