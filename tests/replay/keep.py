"""`python -m tests.replay.keep out/engines`: makes replays of what the agent saw of real engines.

Each scenario becomes a folder with `journal.zst`, the events of its core in the journal's own form, and `expected.txt`,
what the core says to them. Other engines of the machine, its kernel log (other tests write to it), and the names of its
folders, host and boot are not in them. A scenario whose verdicts change by that is refused.
"""

import re
import socket
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import zstandard

from sentinel.core.facts import NAMES
from sentinel.core.rules import Rule
from sentinel.model.effect import AnyEffect, Judged
from sentinel.model.event import AnyEvent, CaptureEnded, EngineGone, EngineSeen, Observed, OpenIncident, Started
from sentinel.model.observation import KernelEvent, KernelLog
from sentinel.record.journal import Journal, entries
from sentinel.record.replay import verdict_lines
from sentinel.rulebook import load_rules

HERE = Path(__file__).resolve().parent
SEGMENT_BYTES = 64 << 20
PLACES = (
    (re.compile(r"[^ \"=:]*/sentinel-engines/(\w+)-\w+"), r"/opt/engines/\1"),
    (re.compile(r"/(?!opt/)[^ \"=:]*/lib/(?=(?:lib)?python3)"), "/opt/python/lib/"),
    (re.compile(r"/[^ \"=:]*/tests/engines/"), "/opt/tests/engines/"),
    (re.compile(r"/root/"), "/home/engine/"),
)
"""Where engines, Python and the tests are installed on the machine of the run."""



def told(effects: Sequence[AnyEffect]) -> str:
    """What was said, one line an effect: of verdicts class, confidence and culprits, because words may change."""
    lines = []
    for effect in effects:
        words = [str(type(effect).__struct_config__.tag)]
        if isinstance(effect, Judged):
            verdict = effect.verdict
            words += [verdict.kind, verdict.confidence, f"ranks={list(verdict.culprits.ranks)}"]
            words += [f"pids={list(verdict.culprits.pids)}"]
        lines.append(" ".join(words) + "\n")
    return "".join(lines)


def said(journal: Path, rules: Sequence[Rule]) -> str:
    """What the core says to a journal's events now."""
    return told([effect for _, effect in verdict_lines(journal, rules)])


def kept(events: Iterator[AnyEvent], pids: frozenset[str]) -> Iterator[AnyEvent]:
    """Events of the engines with these root pids, and of the host."""
    for event in events:
        match event:
            case Started():
                yield msgspec.structs.replace(event, left_open=tuple(_mine(event.left_open, pids)))
            case Observed(engine=None):
                if not isinstance(event.seen, KernelEvent | KernelLog):
                    yield event
            case Observed(engine=str(key)) | EngineGone(key=key) | CaptureEnded(incident=key):
                if _root(key) in pids:
                    yield event
            case EngineSeen():
                if _root(event.engine.key) in pids:
                    yield event
            case _:
                yield event


def _mine(left_open: Sequence[OpenIncident], pids: frozenset[str]) -> Iterator[OpenIncident]:
    return (left for left in left_open if _root(left.engine) in pids)


def _root(key: str) -> str:
    return key.split(":")[1]


def neutral(event: AnyEvent, folder: Path) -> AnyEvent:
    """The same without names of this machine."""
    text = msgspec.json.encode(event).decode()
    below = ((folder, "/srv/run"), (folder.parent, "/srv"))
    for known, name in (*below, (Path.cwd(), "/opt/sentinel"), (Path(sys.prefix), "/opt/python")):
        text = text.replace(str(known), name)
    for pattern, name in PLACES:
        text = pattern.sub(name, text)
    text = re.sub(rf"\b{re.escape(socket.gethostname())}\b", "box", text)
    text = re.sub(r'"boot_id":"[^"]*"', '"boot_id":"boot"', text)
    return msgspec.json.decode(text, type=AnyEvent)


def keep(folder: Path, rules: Sequence[Rule], target: Path) -> str:
    """Make one replay; returns why not, or nothing."""
    pids = frozenset((folder / "pids").read_text().split())
    live = [entry.f for entry in entries(folder / "agent" / "journal") if entry.f is not None]
    before = told([effect for effect in live if _root(effect.engine) in pids])
    events = (entry.e for entry in entries(folder / "agent" / "journal") if entry.e is not None)
    with tempfile.TemporaryDirectory() as private:
        journal = Journal(Path(private), segment_bytes=SEGMENT_BYTES).open()
        for event in kept(events, pids):
            journal.event(neutral(event, folder))
        journal.close()
        after = said(Path(private), rules)
        (written,) = Path(private).iterdir()
        if after != before:
            return f"{folder.name}: it was\n{before}and became\n{after}"
        target.mkdir(parents=True, exist_ok=True)
        (target / "journal.zst").write_bytes(zstandard.ZstdCompressor(19).compress(written.read_bytes()))
    (target / "expected.txt").write_text(after)
    return ""


def main(out: Path) -> int:
    """Keep all scenarios of a run; number of those that could not be kept."""
    rules = load_rules(NAMES)
    folders = sorted(path.parent.resolve() for path in out.glob("*/pids"))
    troubles = [why for folder in folders if (why := keep(folder, rules, HERE / folder.name))]
    sys.stdout.write("".join(f"{why}\n" for why in troubles) + f"{len(folders) - len(troubles)} kept\n")
    return len(troubles)


if __name__ == "__main__":
    sys.exit(bool(main(Path(sys.argv[1]))))
