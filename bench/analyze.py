"""How long `sentinel analyze` takes for every recording, and how long Sentinel takes to start.

    python bench/analyze.py [--runs N] [--corpus FILE]

Start-up is a fresh `sentinel --version`, importing the analyser a fresh process that imports it and ends; both hold
the interpreter's own start, which is given too. Then one process judges each recording in turn: reading, rules' facts
and verdict, as the verb does between its imports and its output. Given are the median and the range of the runs, in
processor time and by the clock.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from figures import machine_line, say, spread

from sentinel.core.facts import NAMES
from sentinel.core.judge import judge
from sentinel.evidence.load import load
from sentinel.rulebook import load_rules
from sentinel.testing.corpus import unpack

CORPUS = Path(__file__).parent.parent / "tests" / "corpus" / "recordings.tar.zst"
STARTS = (
    ("the interpreter alone", ["-c", "pass"]),
    ("sentinel --version", ["-m", "sentinel", "--version"]),
    ("importing the analyser", ["-c", "import sentinel.cli.analyze"]),
)
GOAL_START_S = 0.25
GOAL_ANALYZE_S = 1.0

Timing = tuple[float, float]
"""Processor seconds and clock seconds."""


def fresh(arguments: list[str]) -> Timing:
    """What a fresh interpreter costs from start to end."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    wall_s = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def analysed(evidence: Path) -> Timing:
    """What reading and judging one folder costs in this process, loading the rules included."""
    cpu_s, began = time.process_time(), time.perf_counter()
    rules = load_rules(NAMES)
    loaded = load(evidence)
    judge(loaded.observations, rules, clock_error_s=loaded.clock_error_s, skipped=loaded.skipped)
    return time.process_time() - cpu_s, time.perf_counter() - began


def row(name: str, timings: list[Timing]) -> str:
    """One line of the table."""
    cpu_s, wall_s = zip(*timings, strict=True)
    return f"{name:28} {spread(cpu_s).text():>22} {spread(wall_s).text():>22}"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    options = parser.parse_args()
    say(machine_line())
    say(f"{'seconds, median [range]':28} {'processor':>22} {'clock':>22}")
    for name, arguments in STARTS:
        say(row(name, [fresh(arguments) for _ in range(options.runs)]))
    timings: dict[str, list[Timing]] = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="analyze-bench-") as folder:
        unpack(options.corpus, Path(folder))
        for _ in range(options.runs):
            for evidence in sorted(Path(folder).glob("*/evidence")):
                timings[evidence.parent.name].append(analysed(evidence))
    for name, values in timings.items():
        say(row(name, values))
    slowest = max(spread([cpu_s for cpu_s, _ in values]).median for values in timings.values())
    say(
        f"slowest recording: {slowest:.2f} s of processor time (goals: analysis {GOAL_ANALYZE_S} s, "
        f"start-up {GOAL_START_S} s)"
    )


if __name__ == "__main__":
    main()
