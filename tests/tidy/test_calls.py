"""Calls that are never made, or only in the one place that answers for them."""

import ast
import re
from collections.abc import Iterator

from tests.tidy import sources

BANNED = {
    "eval": "parse it",
    "exec": "parse it",
    "__import__": "use importlib",
    "os.system": "use plumbing.subprocesses",
    "os.popen": "use plumbing.subprocesses",
    "tempfile.mktemp": "use mkstemp",
    "datetime.now": "take the time from the event, or inject a clock",
    "datetime.utcnow": "take the time from the event, or inject a clock",
    "datetime.today": "take the time from the event, or inject a clock",
    "time.time": "take the time from the event, or inject a clock",
    "time.sleep": "wait on an event with a deadline",
}
CLOCKS = ("sentinel/plumbing/", "sentinel/testing/rehearsal/", "sentinel/testing/scenarios.py")
"""The clock itself, and the rehearsal engine with what is done to it: a patient that lives in real time."""
UNPICKLER = "collectors/flight_recorder.py"

CATCH_ALL = {
    "sentinel/cli/__init__.py": "turns a defect into an exit status that is no verdict",
    "collectors/flight_recorder.py": "a damaged pickle raises almost anything, and each means that it is damaged",
    "sentinel/evidence/load.py": "a parser that fails loses its file, not the load",
    "sentinel/scoring/run.py": "an analyser that crashes on a case has got it wrong, and the others are still scored",
    "sentinel/agent/sources/background.py": "kept and raised where its result is asked for",
    "sentinel/coordinator/embed.py": "a defect ends the lead and is logged, and the watch goes on",
    "sentinel/agent/gather.py": "a collector that fails is counted and quarantined",
}
"""The only places that may catch every exception, and why."""


def calls() -> Iterator[tuple[sources.Module, str, ast.Call]]:
    """Every call in the product."""
    for module in sources.product():
        for name, call in module.calls():
            yield module, name, call


def test_no_banned_call() -> None:
    """False: evidence can run code, or judgement depends on the moment it is made."""
    made = {
        f"{module.path}:{call.lineno} {name}": BANNED[name]
        for module, name, call in calls()
        if name in BANNED and not (module.path.startswith(CLOCKS) and name.startswith(("time.", "datetime.")))
    }

    assert made == {}


def test_no_shell_is_ever_started() -> None:
    """False: a file name or a process title of the incident becomes a command."""
    shells = [
        f"{module.path}:{call.lineno}"
        for module, _, call in calls()
        if any(key.arg == "shell" for key in call.keywords)
    ]

    assert shells == []


def test_pickles_are_only_read_by_the_restricted_unpickler() -> None:
    """False: opening a flight-recorder dump of a stranger runs the stranger's code."""
    users = {
        module.path
        for module in sources.product()
        for node in module.imports()
        if re.search(r"\b(c?[pP]ickle|dill|shelve|marshal)\b", ast.unparse(node))
    }

    assert users == {UNPICKLER}
    assert [module.path for module, name, _ in calls() if name in ("pickle.load", "pickle.loads")] == []


def test_yaml_is_only_read_by_a_safe_loader() -> None:
    """False: a rule or configuration file can construct any object."""
    nameless = [
        f"{module.path}:{call.lineno}" for module, name, call in calls() if name == "yaml.load" and len(call.args) != 2
    ]
    unsafe = [
        module.path
        for module in sources.product()
        if re.search(r"yaml\.(C?Loader|FullLoader|UnsafeLoader)", module.text)
    ]

    assert nameless == [] and unsafe == []


def catch_alls(module: sources.Module) -> Iterator[ast.ExceptHandler]:
    """Handlers of every exception that do not raise it again at their end."""
    for node in module.nodes:
        if isinstance(node, ast.ExceptHandler):
            caught = "" if node.type is None else ast.unparse(node.type)
            last = node.body[-1]
            again = isinstance(last, ast.Raise) and last.exc is None
            if caught in ("", "Exception", "BaseException") and not again:
                yield node


def test_only_named_places_catch_everything() -> None:
    """False: a defect becomes "no action", and nobody learns that the watcher is blind."""
    found = {
        f"{module.path}:{node.lineno}"
        for module in sources.product()
        if module.path not in CATCH_ALL
        for node in catch_alls(module)
    }

    assert found == set()


def test_tests_neither_sleep_nor_replace_our_own_code() -> None:
    """False: a test is green because it waited long enough, or because it tested a stand-in."""
    bad = {"time.sleep", "sleep", "patch", "mock.patch", "monkeypatch.setattr", "mocker.patch"}
    # What runs on machines with GPUs is a patient and its recorder, no test: both live in real time.
    tests = [
        module for module in sources.modules() if module.path.startswith("tests/") and "tests/gpu/" not in module.path
    ]
    called = [f"{module.path}:{call.lineno} {name}" for module in tests for name, call in module.calls() if name in bad]
    mocking = [module.path for module in tests for node in module.imports() if "unittest.mock" in ast.unparse(node)]

    assert called == [] and mocking == []
