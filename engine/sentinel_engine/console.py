"""Where the command line speaks to people."""

import argparse
import contextlib
import sys
from typing import TextIO


def stream(options: argparse.Namespace) -> TextIO:
    """With `--json` standard output belongs to the object alone."""
    return sys.stderr if options.json else sys.stdout


def say(options: argparse.Namespace, text: str) -> None:
    """Print a line for people, at once; a launch goes on when nobody listens any more."""
    with contextlib.suppress(BrokenPipeError):
        print(text, file=stream(options), flush=True)
