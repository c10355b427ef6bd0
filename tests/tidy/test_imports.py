"""Who may know whom: judgement stays pure, and nothing below knows what stands above."""

import ast
from collections.abc import Iterator

from tests.tidy import sources

MAY_IMPORT: dict[str, set[str]] = {
    "__init__": set(),
    "__main__": {"cli"},
    "model": {"model"},
    "collector": {"model"},
    "config": {"model"},
    "config_help": {"config", "groups"},
    "core": {"model", "core"},
    "plumbing": {"model", "plumbing"},
    "metrics": {"model", "metrics"},
    "helper": {"plumbing", "helper"},
    "bus": {"model", "plumbing", "bus"},
    "groups": {"model", "config"},
    "actions": {"model", "plumbing", "collectors", "groups", "agent", "actions"},
    "collectors": {"model", "collector", "collectors"},
    "evidence": {"model", "collector", "collectors", "evidence", "plumbing"},
    "rulebook": {"model", "core"},
    "rulecheck": {"model", "core", "rulebook"},
    "report": {"model", "core", "report"},
    "record": {"model", "core", "plumbing", "collector", "collectors", "evidence", "record"},
    "engines": {"model", "plumbing", "engines"},
    "scoring": {"model", "core", "evidence", "rulebook", "scoring", "testing"},
}
"""Room -> rooms it may import. Rooms that are not named compose the others and may import all but the command line."""

SHELLS = {"cli", "agent", "coordinator", "deploy", "testing"}
ABOVE = {"cli"}

VOCABULARY = {
    "sentinel.core.identity.tags_of": "process titles, read alike in a log prefix and in a process table",
    "sentinel.core.xid.xid": "the driver's table of error numbers",
}
"""Pure tables of vendors' words that live in the core and that parsers and engine adapters read too."""

IMPURE = {
    "asyncio", "concurrent", "io", "logging", "multiprocessing", "os", "pathlib", "queue", "random", "select", "shutil",
    "signal", "socket", "sqlite3", "structlog", "subprocess", "sys", "tempfile", "threading", "time", "urllib",
}  # fmt: skip
"""Modules whose use would give judgement a clock, a file, a process or a memory of its own."""


def imported(module: sources.Module) -> Iterator[str]:
    """Dotted names of everything imported, at any depth of the file."""
    for node in module.imports():
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            start = "." * node.level + (node.module or "")
            yield from (f"{start}.{alias.name}" for alias in node.names)


def rooms(module: sources.Module) -> set[str]:
    """Rooms of our package that a module imports."""
    names = [name.split(".") for name in imported(module) if name.split(".")[0] == "sentinel"]
    return {
        parts[1]
        for parts in names
        if len(parts) > 1 and parts[1] != "__version__" and ".".join(parts) not in VOCABULARY
    }


def trespasses(module: sources.Module) -> set[str]:
    """Rooms that a module imports and may not."""
    if module.room in SHELLS:
        return set() if module.room in ABOVE else rooms(module) & ABOVE
    return rooms(module) - MAY_IMPORT.get(module.room, set())


def test_a_room_imports_only_what_stands_below_it() -> None:
    """False: the judge can see the terminal, a parser can judge, or the same code no longer runs live and offline."""
    assert {module.path: found for module in sources.product() if (found := trespasses(module))} == {}


def test_every_room_has_its_law() -> None:
    """False: a new folder escapes the law of imports."""
    assert {module.room for module in sources.product()} <= set(MAY_IMPORT) | SHELLS


def test_judgement_has_no_clock_file_or_process() -> None:
    """False: the same evidence gives another verdict tomorrow, or on another machine."""
    impure = {
        module.path: found
        for module in sources.product()
        if module.room in ("core", "model") and (found := {name.split(".")[0] for name in imported(module)} & IMPURE)
    }

    assert impure == {}


def test_names_are_imported_in_one_way() -> None:
    """False: a module exists twice under two names, and `isinstance` says no to its own class."""
    odd = {
        f"{module.path}: {name}"
        for module in sources.modules()
        for name in imported(module)
        if name.split(".")[0] in ("collectors", "rules", "__future__")
        or (name[0] == "." and module in sources.product())
    }

    assert odd == set()


def test_the_engine_and_the_watcher_do_not_know_each_other() -> None:
    """False: the watcher cannot be installed without the engine, or dies with it."""
    for module in sources.modules():
        names = {name.split(".")[0] for name in imported(module)}
        if module.path.startswith("engine/"):
            assert "sentinel" not in names, module.path
        elif module.path.startswith(sources.PRODUCT):
            assert "sentinel_engine" not in names, module.path
