"""The row store of an engine on this host: what its pages show, whether RAM would hold it, and what it can be told.

Pages and sockets lie in one folder, `NAME.page` and `NAME.sock` for every rank (see docs/rowstore.md). Reading a page
cannot block; commands go through the `rowstore` tool with a deadline.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

from sentinel.collectors.rowstore_page import PAGE_BYTES, telemetry
from sentinel.groups import STORE_MARGIN, Store
from sentinel.model.group import StoreReport
from sentinel.model.observation import Origin, StoreTelemetry
from sentinel.plumbing.subprocesses import run_bounded

STUCK_S = 5.0
"""A gather that runs for longer than every deadline of the store waits for something that does not come."""
PAGES_MAX = 64
MEMINFO = Path("/proc/meminfo")


def report(store: Store) -> StoreReport | None:
    """The mode in force and the stuck lanes; None when no page can be read. Ranks in different modes are `mixed`."""
    pages = list(_pages(store))
    if not pages:
        return None
    modes = {page.mode for _, page in pages}
    live = all(path.with_suffix(".sock").exists() for path, _ in pages)
    lanes = tuple(sorted({page.open_lane for _, page in pages if page.open_lane is not None and _stuck(page)}))
    return StoreReport(mode=modes.pop() if len(modes) == 1 else "mixed", live=live, stuck_lanes=lanes)


def fits(store: Store, mode: str) -> str:
    """Why the store cannot go to a mode on this host; empty when it can."""
    if mode != "ram":
        return "" if any(True for _ in _pages(store)) else f"no telemetry page in {store.folder}"
    if store.bytes <= 0:
        return "how large the store is, is not known; set store.bytes of the group"
    available = _available_bytes()
    if available is None:
        return "how much memory is free cannot be told"
    needed = round(store.bytes * STORE_MARGIN)
    return "" if available >= needed else f"it does not fit: {needed >> 20} MiB needed, {available >> 20} MiB available"


def set_mode(store: Store, mode: str, within_s: float) -> str:
    """Switch every rank's running store; why that failed, or nothing. The mode in force is read back from the pages."""
    for path, _ in list(_pages(store)):
        if why := _tell(store, path, "mode", mode, within_s):
            return why
    wrong = [path.stem for path, page in _pages(store) if page.mode != mode]
    return f"{', '.join(wrong)} did not change" if wrong else ""


def unblock(store: Store, within_s: float) -> str:
    """End the gathers that stuck lanes wait in: failed batches instead of a hang. Why that failed, or nothing."""
    stuck = [(path, page) for path, page in _pages(store) if _stuck(page)]
    if not stuck:
        return "no lane is stuck any more"
    for path, page in stuck:
        if why := _tell(store, path, "unblock", str(page.open_lane), within_s):
            return why
    return ""


def _tell(store: Store, page: Path, verb: str, word: str, within_s: float) -> str:
    """Give one rank's running store a command; why that failed, or nothing."""
    argv = (store.command, "--json", verb, str(page.with_suffix(".sock")), word)
    ran = run_bounded(argv, deadline_s=within_s)
    return "" if ran.ok else ran.why or _said(ran.stdout) or f"`{store.command} {verb}` failed with status {ran.status}"


def _pages(store: Store) -> Iterator[tuple[Path, StoreTelemetry]]:
    folder = Path(store.folder)
    for path in sorted(folder.glob("*.page"))[:PAGES_MAX]:
        try:
            data = path.read_bytes()
        except OSError:
            continue
        seen = telemetry(data, Origin(str(path)), time.monotonic_ns()) if len(data) == PAGE_BYTES else None
        if seen is not None:
            yield path, seen


def _stuck(page: StoreTelemetry) -> bool:
    return page.gather_s >= STUCK_S


def _available_bytes() -> int | None:
    """MemAvailable of proc_meminfo(5)."""
    try:
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        return None
    return None


def _said(output: bytes) -> str:
    try:
        told = json.loads(output)
    except ValueError:
        return ""
    return str(told.get("error", ""))[:200] if isinstance(told, dict) else ""
