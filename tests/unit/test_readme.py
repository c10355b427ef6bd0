"""The verdict that the README shows is what the program prints today."""

import os
import re
import subprocess
import sys
from pathlib import Path

from sentinel.testing.corpus import unpack
from tests.tidy import sources

README = sources.ROOT / "README.md"
SHOWN = re.compile(r"(?<=```\n\$ sentinel analyze evidence/\n).*?(?=```)", re.DOTALL)
REFRESH = "SENTINEL_REFRESH"
"""With this variable set the README is rewritten instead of compared; read the difference before you commit it."""


def demo(folder: Path) -> str:
    """What `make demo` prints: the incident that the Makefile names, analysed by the real command."""
    makefile = (sources.ROOT / "Makefile").read_text()
    corpus, incident = (re.search(rf"^{name} := (\S+)$", makefile, re.MULTILINE) for name in ("CORPUS", "INCIDENT"))
    assert corpus is not None and incident is not None
    evidence = unpack(sources.ROOT / corpus[1], folder) / incident[1] / "evidence"
    done = subprocess.run(
        [sys.executable, "-m", "sentinel", "analyze", str(evidence)],
        capture_output=True, check=False, timeout=120, text=True, cwd=sources.ROOT,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    return done.stdout


def test_the_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    """False: the first thing that a reader sees is a verdict which the program does not give."""
    printed, text = demo(tmp_path), README.read_text()
    shown = SHOWN.search(text)
    assert shown is not None
    if os.environ.get(REFRESH):
        README.write_text(text[: shown.start()] + printed + text[shown.end() :])
    else:
        assert shown[0] == printed
