"""Command: apply every transform to every case of the named corpora and print what is no longer as labelled."""

import sys
from collections import Counter
from pathlib import Path

import click

from sentinel.scoring.cases import opened
from sentinel.scoring.run import analyse, survive
from sentinel.testing.metamorphic import TRANSFORMS, judge_transformed, read_case


def main(arguments: list[str]) -> int:
    """Run; `--only WORD` keeps the transforms whose name has that word, `--case WORD` the cases."""
    words = {"--only": "", "--case": ""}
    paths: list[Path] = []
    rest = iter(arguments)
    for argument in rest:
        if argument in words:
            words[argument] = next(rest, "")
        else:
            paths.append(Path(argument))
    runs, wrong, softened = Counter[str](), Counter[str](), Counter[str]()
    with opened(tuple(paths)) as cases:
        for case in (found for found in cases if words["--case"] in found.name):
            original, whole = read_case(case), survive(analyse, case.evidence).verdict
            for name in (known for known in TRANSFORMS if words["--only"] in known):
                found = judge_transformed(case, original, name, whole)
                if found is not None:
                    runs[name] += 1
                    wrong[name] += found.outcome == "wrong"
                    softened[name] += found.outcome == "softened"
                    if found.outcome != "right":
                        click.echo(str(found))
    for name, count in runs.items():
        click.echo(f"{name:24s} {count - wrong[name] - softened[name]} right, {softened[name]} softened of {count}")
    right = runs.total() - wrong.total() - softened.total()
    click.echo(f"{right} right, {softened.total()} softened, {wrong.total()} wrong of {runs.total()}")
    return 1 if wrong.total() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
