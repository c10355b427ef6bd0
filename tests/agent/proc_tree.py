"""A folder that looks like /proc, for what cannot be had from real processes: reused pids, containers, other users."""

from pathlib import Path


class ProcTree:
    """Processes as files; `start` and `end` change what the next scan sees."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(
        self, pid: int, ppid: int, *argv: str, ticks: int = 1000, environ: str = "", cgroup: str = "0::/", log: str = ""
    ) -> None:
        """A process with these arguments, started at `ticks`."""
        home = self.folder / str(pid)
        for name in ("fd", "root", f"task/{pid}"):
            (home / name).mkdir(parents=True, exist_ok=True)
        fields = ["S", str(ppid), *["0"] * 17, str(ticks), *["0"] * 20]
        (home / "stat").write_text(f"{pid} (python3) {' '.join(fields)}\n")
        (home / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in argv))
        (home / "environ").write_bytes(environ.encode().replace(b" ", b"\0"))
        (home / "cgroup").write_text(cgroup + "\n")
        if log:
            (home / "fd" / "2").unlink(missing_ok=True)
            (home / "fd" / "2").symlink_to(log)

    def end(self, pid: int) -> None:
        """The process is gone."""
        (self.folder / str(pid)).rename(self.folder / f"gone-{pid}-{len(list(self.folder.iterdir()))}")
