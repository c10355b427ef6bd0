"""Real bundles for tests: of committed recordings, and of an incident folder as the agent leaves it."""

import json
from pathlib import Path

import msgspec

from sentinel.core.judge import judge
from sentinel.evidence.load import Loaded
from sentinel.model.effect import Judged, StartCapture, Suspected
from sentinel.model.stamp import Stamp
from sentinel.model.verdict import Verdict
from sentinel.scoring.run import shipped_rules

KEY = bytes(range(32))
INCIDENT = "sglang-4711-1"


def judged(loaded: Loaded) -> Verdict:
    """The verdict on loaded evidence."""
    rules = shipped_rules()
    return judge(loaded.observations, rules, clock_error_s=loaded.clock_error_s, skipped=loaded.skipped).verdict


def incident(root: Path, text: str = "") -> Path:
    """An incident folder: a log, one stack, one failed step, and the agent's records."""
    home = root / INCIDENT
    (home / "evidence").mkdir(parents=True)
    lines = [
        f"[2026-11-29 10:00:{second:02d} TP0] Decode batch. #running-req: 4, #token: {4096 + second}, "
        "token usage: 0.10, gen throughput (token/s): 90.1, #queue-req: 0"
        for second in range(30)
    ]
    (home / "evidence" / "engine.log").write_text("\n".join([*lines, text]) + "\n")
    (home / "evidence" / "py-spy-4711.txt").write_text(
        "Process 4711: sglang::scheduler_TP0\nPython v3.12.3 (/usr/bin/python3.12)\n\n"
        'Thread 4711 (idle): "MainThread"\n'
        "    acquire (threading.py:100)\n    run_batch (sglang/srt/managers/scheduler.py:1088)\n"
    )
    verdict = Verdict(kind="unknown", stalled=None, confidence="low", summary="Not yet known.")
    effects = (
        Suspected(engine="sglang:4711", incident=INCIDENT, silence_s=9.0, limit_s=8.0, why="decode lines are overdue"),
        StartCapture(engine="sglang:4711", incident=INCIDENT, budget_s=20.0, why="60 s of silence"),
        Judged(engine="sglang:4711", incident=INCIDENT, verdict=verdict),
    )
    with (home / "incident.jsonl").open("wb") as file:
        for number, effect in enumerate(effects):
            at = Stamp(mono_ns=(100 + number) * 10**9, wall_ns=1_795_946_440 * 10**9 + number * 10**9, boot_id="b")
            file.write(msgspec.json.encode({"at": at, "effect": effect}) + b"\n")
    (home / "verdict.json").write_bytes(msgspec.json.encode(verdict))
    steps = [
        {"what": "py-spy", "pid": 4711, "pass_no": 1, "began_s": 1.0, "took_s": 0.1, "file": "py-spy-4711.txt"},
        {"what": "pystack", "pid": 4711, "pass_no": 2, "began_s": 3.0, "took_s": 5.0, "file": None,
         "why": "not finished after 5 s"},
    ]  # fmt: skip
    (home / "capture.json").write_text(json.dumps(steps))
    return home
