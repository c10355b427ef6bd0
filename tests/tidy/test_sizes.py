"""Nothing grows beyond what a reader can hold in the head."""

from tests.tidy import sources

MODULE_LINES = 400
CATALOGUE_LINES = 600
"""For modules that only declare: without a function of more than `DECLARED_LINES` there is no logic to follow."""
DECLARED_LINES = 8
FUNCTION_LINES = 60


def length(node: sources.Function) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def limit(module: sources.Module) -> int:
    only_declares = all(length(node) <= DECLARED_LINES for node in module.functions())
    return CATALOGUE_LINES if only_declares else MODULE_LINES


def test_no_module_is_too_long() -> None:
    """False: a file does more than one thing, and a fix in it is made without knowing the rest."""
    lines = {module.path: len(module.text.splitlines()) for module in sources.modules()}
    long = {module.path: lines[module.path] for module in sources.modules() if lines[module.path] > limit(module)}

    assert long == {}


def test_no_function_is_too_long() -> None:
    """False: a function hides a second one that nobody tests."""
    long = {
        f"{module.path}:{node.lineno} {node.name}": length(node)
        for module in sources.modules()
        for node in module.functions()
        if length(node) > FUNCTION_LINES
    }

    assert long == {}
