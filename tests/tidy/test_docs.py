"""What the documents tell a user to run, and where they point, exists."""

import re
from pathlib import Path, PurePosixPath

from sentinel.cli import VERBS, sentinel
from tests.tidy import sources

TARGET = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
COMMAND = re.compile(r"\bmake ([a-z][a-z-]*)")
VERB = re.compile(r"(?:^|`|\$ |bin/)sentinel ([a-z][a-z-]*)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def documents() -> dict[str, str]:
    return {name: text for name, text in sources.texts().items() if name.endswith(".md") and "corpus" not in name}


def code(text: str) -> str:
    """Only what stands in fences and backticks: commands, not prose."""
    return "\n".join(re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL))


def test_every_make_command_of_the_documents_exists() -> None:
    """False: the first thing a new user types fails."""
    targets = set(TARGET.findall((sources.ROOT / "Makefile").read_text()))
    told = {(name, found) for name, text in documents().items() for found in COMMAND.findall(code(text))}

    assert {(name, found) for name, found in told if found not in targets} == set()
    assert {found for name, found in told if name == "README.md"} >= {"demo", "test"}


def test_every_verb_of_the_documents_exists() -> None:
    """False: the manual describes a command that the program does not have."""
    told = {(name, found) for name, text in documents().items() for found in VERB.findall(code(text))}

    assert {(name, found) for name, found in told if found not in VERBS} == set()


def test_every_verb_can_be_loaded_and_matches_its_help() -> None:
    """False: a verb is listed but crashes when it is used."""
    context = sentinel.make_context("sentinel", ["--help"], resilient_parsing=True)
    for verb in VERBS:
        command = sentinel.get_command(context, verb)
        assert command is not None and command.name == verb
        assert command.help


def test_every_link_of_the_documents_leads_somewhere() -> None:
    """False: the reader stands before a missing page."""
    broken = [
        f"{name}: {link}"
        for name, text in documents().items()
        for link in LINK.findall(text)
        if "://" not in link and not (sources.ROOT / PurePosixPath(name).parent / link).exists()
    ]

    assert broken == []


def test_ci_runs_what_the_readme_tells_users_to_run() -> None:
    """False: the commands of the README are broken and CI is green."""
    told = set(COMMAND.findall(code((sources.ROOT / "README.md").read_text())))
    runs = (sources.ROOT / Path(".ci/run")).read_text()

    assert {target for target in told if not re.search(rf"\b{target}\b", runs)} == set()
