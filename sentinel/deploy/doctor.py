"""Would an incident be noticed, captured and reported on this host? One check a question, with the repair in one line.

Nothing here changes the host. The only process that is looked into is a child of the doctor itself.
"""

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from sentinel.agent import ladder, procfs, ras, readiness, status
from sentinel.agent.helper import HELPER, KERNEL_STACKS, Helper
from sentinel.config import Config
from sentinel.deploy.hazards import containers
from sentinel.model.stamp import Stamp
from sentinel.plumbing.subprocesses import run_bounded

State = Literal["ok", "warn", "fail", "skip"]
TOOL_S = 10.0
HTTP_S = 5.0
FREE_SHARE, FREE_BYTES = 0.10, 5 << 30
BODY_MAX = 4 << 20
NVML_SLOW_S = 2.0
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. `fix` is empty unless there is something to repair."""

    check: str
    state: State
    says: str
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What is examined: this host, now, with this configuration; the two services when their addresses are given."""

    config: Config
    now: Stamp
    prometheus: str = ""
    alertmanager: str = ""


def examine(case: Case) -> Iterator[Finding]:
    """Every check, cheap ones first."""
    for check in CHECKS:
        yield from check(case)


def _agent(case: Case) -> Iterator[Finding]:
    found = status.read(Path(case.config.folders.state), case.now)
    if found is None:
        fix = "systemctl start sentinel-agent, or sentinel watch"
        yield Finding(check="agent", state="fail", says=f"none runs on {case.config.folders.state}", fix=fix)
        return
    yield Finding(check="agent", state="ok", says=f"pid {found.agent.pid}, {len(found.engines)} engines")
    for trouble in found.troubles:
        yield Finding(check="agent", state="fail", says=trouble, fix="repair what is named, then restart the agent")
    needed_s = case.config.timing.capture_after_s + case.config.timing.capture_budget_s
    for engine in found.engines:
        if engine.deadline is not None and engine.deadline.earliest_s < needed_s:
            yield Finding(
                check="engine watchdog", state="warn",
                says=f"{engine.key} ends itself after {engine.deadline.earliest_s:.0f} s, we need {needed_s:.0f} s",
                fix="raise the engine's own time-out to 300 s or more; until then evidence is taken earlier",
            )  # fmt: skip
    for check in found.readiness:
        if not check.ok and check.engine is not None:
            yield Finding(
                check="evidence", state="warn", says=f"{check.engine}: {check.what}: {check.says}", fix=check.fix
            )


def _host(case: Case) -> Iterator[Finding]:
    del case
    for check in readiness.host():
        is_tool = check.what in readiness.PACKAGES
        says = f"{check.what} is {check.says}" if is_tool and not check.ok else check.says
        name = "tools" if is_tool else check.what
        yield Finding(check=name, state="ok" if check.ok else "warn", says=says, fix=check.fix)


def _ptrace(case: Case) -> Iterator[Finding]:
    del case
    scope = YAMA.read_text().strip() if YAMA.exists() else "0"
    if scope == "3":
        fix = "sysctl kernel.yama.ptrace_scope=1 (a reboot is needed to leave 3)"
        yield Finding(check="yama", state="fail", says="ptrace is off for everybody until the next boot", fix=fix)
    else:
        yield Finding(check="yama", state="ok", says=f"ptrace_scope {scope}")
    sleeper = "import sys, threading; sys.stdout.write('.'); sys.stdout.flush(); threading.Event().wait()"
    child = subprocess.Popen([sys.executable, "-c", sleeper], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        child.stdout.read(1)
        found = procfs.identity(child.pid)
        taken = None if found is None else ladder.PY_SPY.take(found[0])
    finally:
        child.kill()
        child.communicate()
    if taken is not None and taken.ok:
        yield Finding(check="ptrace", state="ok", says=f"stacks of a child of ours took {taken.took_s * 1000:.0f} ms")
    else:
        yield Finding(
            check="ptrace", state="fail", says="no stacks" if taken is None else taken.why, fix=readiness.RIGHTS_FIX
        )


def _helper(case: Case) -> Iterator[Finding]:
    del case
    yield _service("helper", HELPER, "threads", "sentinel install, or run the agent with CAP_SYS_PTRACE")
    yield _service("kernel stacks", KERNEL_STACKS, "kernel_stacks", "optional: sentinel install --kernel-stacks")


def _service(check: str, service: Helper, verb: str, install: str) -> Finding:
    """Whether a privileged service answers about this very process, be it with a refusal by policy."""
    if not service.path.exists():
        return Finding(check=check, state="skip", says=f"{service.path} does not exist", fix=install)
    me = procfs.identity(os.getpid())
    told = service.ask(verb, None if me is None else me[0])
    if told.data or "control group" in told.why:
        return Finding(check=check, state="ok", says="answers")
    fix = f"run as root or as the user sentinel; journalctl -u '{service.path.stem}@*' says why"
    return Finding(check=check, state="fail", says=told.why, fix=fix)


def _clock(case: Case) -> Iterator[Finding]:
    del case
    ran = run_bounded(["timedatectl", "show", "--property=NTPSynchronized", "--value"], deadline_s=TOOL_S)
    said = ran.stdout.decode(errors="replace").strip()
    if said == "yes":
        yield Finding(check="clock", state="ok", says="synchronised")
    elif said == "no":
        fix = "timedatectl set-ntp true, or repair chrony"
        yield Finding(check="clock", state="warn", says="not synchronised: times of hosts cannot be compared", fix=fix)
    else:
        yield Finding(check="clock", state="skip", says="timedatectl does not tell")


def _disk(case: Case) -> Iterator[Finding]:
    folder = Path(case.config.folders.state)
    while not folder.exists():
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    enough = usage.free >= FREE_BYTES and usage.free >= FREE_SHARE * usage.total
    yield Finding(
        check="disk", state="ok" if enough else "fail", says=f"{usage.free / (1 << 30):.1f} GiB free below {folder}",
        fix="" if enough else "make room: a tenth and 5 GiB are needed, or evidence may not fit",
    )  # fmt: skip


def _driver(case: Case) -> Iterator[Finding]:
    del case
    if not Path("/dev/nvidiactl").exists():
        yield Finding(check="NVML", state="skip", says="no NVIDIA driver on this host")
        return
    code = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    ran = run_bounded([sys.executable, "-c", code], deadline_s=TOOL_S)
    if not ran.ok:
        yield Finding(
            check="NVML", state="fail", says=ran.why or ran.said_last,
            fix="nvidia-smi says more; is /dev/nvidia* open to the agent?",
        )  # fmt: skip
    else:
        slow = ran.took_s > NVML_SLOW_S
        fix = "start nvidia-persistenced" if slow else ""
        says = f"{ran.stdout.decode().strip()} GPUs, answered in {ran.took_s:.1f} s"
        yield Finding(check="NVML", state="warn" if slow else "ok", says=says, fix=fix)


def _ras(case: Case) -> Iterator[Finding]:
    del case
    taken = ras.status(2.0)
    fix = "" if taken.ok else "needed only while a NCCL job runs: NCCL 2.24 or newer, and NCCL_RAS_ENABLE not 0"
    yield Finding(
        check="NCCL RAS", state="ok" if taken.ok else "skip", says="answers" if taken.ok else taken.why, fix=fix
    )


def _reload(case: Case) -> Iterator[Finding]:
    del case
    found = list(containers())
    for hazard in found:
        yield Finding(check="daemon-reload", state="warn", says=hazard.what, fix=hazard.fix)
    if not found:
        yield Finding(check="daemon-reload", state="ok", says="no container would lose its GPUs")


def _page(case: Case) -> Iterator[Finding]:
    metrics = case.config.metrics
    if not metrics.listen:
        yield Finding(check="metrics", state="warn", says="not served", fix="set metrics.listen")
        return
    if metrics.certificate_file:
        yield Finding(check="metrics", state="skip", says=f"{metrics.listen} serves TLS; scrape it to check it")
        return
    body, why = _get(f"http://{metrics.listen}/healthz")
    fix = "" if body else "is the agent running, and is metrics.listen the same for both?"
    yield Finding(check="metrics", state="ok" if body else "fail", says=body.decode().strip() if body else why, fix=fix)


def _prometheus(case: Case) -> Iterator[Finding]:
    if not case.prometheus:
        yield Finding(check="rules loaded", state="skip", says="not asked", fix="give --prometheus URL")
        return
    body, why = _get(f"{case.prometheus}/api/v1/rules")
    loaded = b"SentinelDeadMansSwitch" in body
    fix = "" if loaded else "add dashboards/rules/sentinel.rules.yaml to rule_files and reload Prometheus"
    says = why or ("loaded" if loaded else "Prometheus has no rule SentinelDeadMansSwitch")
    yield Finding(check="rules loaded", state="ok" if loaded else "fail", says=says, fix=fix)


def _dead_man(case: Case) -> Iterator[Finding]:
    if not case.alertmanager:
        yield Finding(check="dead man", state="skip", says="not asked", fix="give --alertmanager URL")
        return
    body, why = _get(f"{case.alertmanager}/api/v2/status")
    routed = b"SentinelDeadMansSwitch" in body
    fix = (
        ""
        if routed
        else "route SentinelDeadMansSwitch to a receiver outside this site, as in alertmanager.example.yaml"
    )
    says = why or ("routed" if routed else "no route names SentinelDeadMansSwitch")
    yield Finding(check="dead man", state="ok" if routed else "fail", says=says, fix=fix)


def _get(url: str) -> tuple[bytes, str]:
    """(body, why not)."""
    if not url.startswith(("http://", "https://")):
        return b"", f"{url}: an address begins with http:// or https://"
    try:
        with urllib.request.urlopen(url, timeout=HTTP_S) as answer:
            return answer.read(BODY_MAX), ""
    except (OSError, urllib.error.URLError, ValueError) as error:
        return b"", f"{url}: {error}"


CHECKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _agent, _host, _ptrace, _helper, _clock, _disk, _driver, _ras, _reload, _page, _prometheus, _dead_man,
)  # fmt: skip


def as_json(findings: list[Finding]) -> str:
    """The findings as one JSON object."""
    built: dict[str, Any] = {"ok": not failed(findings), "findings": msgspec.to_builtins(findings)}
    return json.dumps(built, indent=1)


def failed(findings: list[Finding]) -> bool:
    """Whether anything has to be repaired before this host is watched well."""
    return any(finding.state == "fail" for finding in findings)
