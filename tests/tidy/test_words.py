"""What is written in the files: docstrings where a reader looks for them, nothing unfinished, nothing local."""

import ast
import re
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath

import zstandard

from tests.tidy import sources

MARKERS = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK")) + r")\b")
WORKPLACE = re.compile(
    "|".join((
        r"(?<![\w.])/" + r"work/",
        r"\.\./" + r"shared\b",
        r"py" + r"pi\.org",
        r"files\.python" + r"hosted",
        r"registry\.npm" + r"js",
        r"deb\.deb" + r"ian\.org",
        r"proxy\.go" + r"lang",
    )),
    re.IGNORECASE,
)  # fmt: skip


PRESCRIBED = {"do_GET", "do_POST", "log_message"}
"""Names of methods that a base class of the standard library prescribes and describes."""


def silent(module: sources.Module) -> Iterator[str]:
    """Public functions, methods and classes without a docstring, and the module itself."""
    if not ast.get_docstring(module.tree):
        yield module.path
    if PurePosixPath(module.path).name.startswith("_") and not module.path.endswith("__init__.py"):
        return
    for parent in module.nodes:
        hidden = isinstance(parent, ast.ClassDef) and parent.name.startswith("_")
        if isinstance(parent, ast.Module | ast.ClassDef) and not hidden:
            for node in parent.body:
                if isinstance(node, sources.Definition) and not _needs_no_words(node):
                    yield f"{module.path}:{node.lineno} {node.name}"


def _needs_no_words(node: sources.Definition) -> bool:
    """Private, described, or a member of a Protocol, which its class describes."""
    stub = len(node.body) == 1 and ast.unparse(node.body[0]) == "..."
    return node.name.startswith("_") or node.name in PRESCRIBED or stub or bool(ast.get_docstring(node))


def test_what_others_use_says_what_it_is() -> None:
    """False: the next reader has to guess units, errors and the source of a format."""
    assert [name for module in sources.product() for name in silent(module)] == []


def test_every_test_says_what_its_failure_would_mean() -> None:
    """False: a red test does not tell what is broken in production."""
    tests = [
        module
        for module in sources.modules()
        if module.path.startswith("tests/") and PurePosixPath(module.path).name.startswith("test_")
    ]
    mute = [
        f"{module.path}:{node.lineno} {node.name}"
        for module in tests
        for node in module.functions()
        if node.name.startswith("test_") and not ast.get_docstring(node)
    ]

    assert mute == []


def test_nothing_is_left_unfinished() -> None:
    """False: a promise in a comment is taken for a feature."""
    found = [
        f"{name}: {match[0]}"
        for name, text in sources.texts().items()
        if not name.startswith(("tests/corpus/", "LICENSE"))
        for match in MARKERS.finditer(text)
    ]

    assert found == []


def test_no_file_names_the_place_where_it_was_written() -> None:
    """False: a path or host that exists on one machine only is shipped to all."""
    found = [f"{name}: {match[0]}" for name, text in sources.texts().items() for match in WORKPLACE.finditer(text)]

    assert found == []


def test_no_rule_or_parser_knows_a_labelled_case() -> None:
    """False: the accuracy is measured on cases that the code was fitted to by name."""
    names = set()
    for archive in (sources.ROOT / "tests" / "corpus").glob("*.tar.zst"):
        with (
            archive.open("rb") as raw,
            zstandard.ZstdDecompressor().stream_reader(raw) as plain,
            tarfile.open(fileobj=plain, mode="r|") as tar,
        ):
            names |= {PurePosixPath(member.name).parts[0] for member in tar}
    telling = {name for name in names if "-" in name}
    known = [
        f"{path}: {name}"
        for path, text in sources.texts().items()
        if path.startswith((*sources.PRODUCT, "rules/"))
        for name in telling
        if name in text
    ]

    assert telling and known == []
