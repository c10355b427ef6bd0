"""What the style tests read: the files of the repository, and the Python ones as syntax trees."""

import ast
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("sentinel/", "collectors/")
OURS = (*PRODUCT, "tests/", "bench/", "engine/")
PACKED = {".gz", ".zst", ".png", ".ico"}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef


@dataclass(frozen=True, slots=True, eq=False)
class Module:
    """One Python file. `room` is the first folder below `sentinel`, or the file's own name there."""

    path: str
    text: str
    tree: ast.Module

    @property
    def room(self) -> str:
        """`core` for sentinel/core/judge.py, `rulebook` for sentinel/rulebook.py, `collectors` for collectors/x.py."""
        parts = Path(self.path).with_suffix("").parts
        return parts[0] if parts[0] != "sentinel" else parts[1]

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree."""
        return _nodes(self)

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones included."""
        yield from (node for node in self.nodes if isinstance(node, Function))

    def imports(self) -> Iterator[ast.Import | ast.ImportFrom]:
        """Every import, at any depth of the file."""
        yield from (node for node in self.nodes if isinstance(node, ast.Import | ast.ImportFrom))

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Every call with the dotted name of what is called; "" for what has none, such as the result of a call."""
        yield from ((_dotted(node.func), node) for node in self.nodes if isinstance(node, ast.Call))


@cache
def _nodes(module: Module) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(module.tree))


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (start := _dotted(node.value)):
        return f"{start}.{node.attr}"
    return ""


@cache
def tracked() -> tuple[str, ...]:
    """Files that belong to the repository, relative to its root; outside a checkout, all files that look like ours."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=False, timeout=60, text=True
    )
    if listing.returncode == 0 and listing.stdout:
        names = [name for name in listing.stdout.split("\0") if name]
    else:
        names = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*")]
    return tuple(name for name in names if (ROOT / name).is_file() and not (ROOT / name).is_symlink())


@cache
def texts() -> dict[str, str]:
    """Every tracked text file; packed and binary ones are left out."""
    found = {}
    for name in tracked():
        if Path(name).suffix not in PACKED:
            raw = (ROOT / name).read_bytes()
            if b"\0" not in raw:
                found[name] = raw.decode(errors="replace")
    return found


@cache
def modules() -> tuple[Module, ...]:
    """Every tracked Python file of ours."""
    return tuple(
        Module(name, text, ast.parse(text, name))
        for name, text in texts().items()
        if name.endswith(".py") and name.startswith(OURS)
    )


def product() -> tuple[Module, ...]:
    """The Python files of the package itself."""
    return tuple(module for module in modules() if module.path.startswith(PRODUCT))
