"""How the co-packaged engine is started again: what its launcher is asked, seen by a program on the path."""

import os
from pathlib import Path

import pytest

from sentinel.actions.supervisors import Packaged


def test_the_launcher_is_asked_for_the_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """False: an engine that hung on NVMe is restarted on NVMe although RAM was decided."""
    asked = tmp_path / "asked"
    program = tmp_path / "sentinel-engine"
    program.write_text(f'#!/bin/sh\necho "$*" >> {asked}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    assert Packaged("/etc/chat.toml").start("mark", "ram", 5.0).ok
    assert Packaged("/etc/chat.toml").start("mark", "", 5.0).ok
    assert asked.read_text().splitlines() == [
        "--json launch /etc/chat.toml --mode ram",
        "--json launch /etc/chat.toml",
    ]
