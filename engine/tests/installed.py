"""Makes `import sentinel_engine` mean the installed engine, wherever the tests are started.

`python -m pytest` puts the current folder first on the path. Started from `engine/` that is the
package's source, which holds no built core unless it was installed with `--editable`.
"""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1]


def _prefer_installed() -> None:
    if (SOURCE / "sentinel_engine" / "rowstore" / "librowstore.so").exists():
        return
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != SOURCE]
    os.environ["PYTHONSAFEPATH"] = "1"  # children of the tests look no further than we do
    if importlib.util.find_spec("sentinel_engine") is None:
        pytest.exit("the engine is not installed: run `pip install './engine[dev]'`", returncode=4)


_prefer_installed()
