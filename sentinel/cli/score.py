"""`sentinel score`: how often is the analyser right on labelled evidence?"""

import sys
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from sentinel.scoring.ablate import AblationKind, ablate_case, tally
from sentinel.scoring.cases import GENERATED, Case, opened
from sentinel.scoring.expected import LabelError
from sentinel.scoring.markdown import read_explanations, report
from sentinel.scoring.run import Analyse, Result, analyse, analyse_isolated, score_case
from sentinel.scoring.summary import confusion_lines, line, summarise, totals
from sentinel.testing.corpus import CorpusError


@click.command("score")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout instead of text.")
@click.option("--isolated", is_flag=True, help="A fresh process for each case: exact peak memory, slower.")
@click.option("--ablate", type=click.Choice(["sources", "ranks", "all"]), help="Take sources or ranks away instead.")
@click.option("--generate", type=click.IntRange(min=1), metavar="N", help="Score N generated cases as well.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the generated cases.")
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Write the accuracy report to FILE.")
@click.option("--wrong-only", is_flag=True, help="Print only the cases that are not right.")
def command(
    paths: tuple[Path, ...],
    as_json: bool,
    isolated: bool,
    ablate: AblationKind | None,
    generate: int | None,
    seed: int,
    markdown: Path | None,
    wrong_only: bool,
) -> None:
    """Score the analyser on every folder with expected.yaml and evidence/ below PATHS (also in *.tar.zst archives).

    Exit status: 0 all right, 1 something wrong, 2 usage error.
    """
    if not paths and generate is None:
        raise click.UsageError("give a folder, a packed corpus or --generate")
    analyser: Analyse = analyse_isolated if isolated else analyse
    try:
        with opened(paths, generate=generate, seed=seed) as cases:
            if not cases:
                raise click.UsageError("no case (expected.yaml beside evidence/) found")
            if markdown is not None:
                wrong = _markdown(cases, analyser, markdown, ablate, generate, seed)
            elif ablate is None:
                wrong = _score(cases, analyser, as_json, wrong_only)
            else:
                wrong = _ablate(cases, analyser, ablate, as_json, wrong_only)
    except (LabelError, CorpusError) as error:
        raise click.UsageError(str(error)) from error
    sys.exit(1 if wrong else 0)


def _score(cases: Sequence[Case], analyser: Analyse, as_json: bool, wrong_only: bool) -> bool:
    results: list[Result] = []
    for case in cases:
        results.append(score_case(case, analyser))
        if not as_json and not (wrong_only and results[-1].mark.right):
            click.echo(line(results[-1]))
    summary = summarise(results)
    if as_json:
        click.echo(msgspec.json.encode({"summary": summary, "results": results}))
    else:
        click.echo("\n" + "\n".join(confusion_lines(summary)) + "\n\n" + "\n".join(totals(summary)))
    return summary.right < summary.cases


def _markdown(
    cases: Sequence[Case], analyser: Analyse, path: Path, ablate: AblationKind | None, generate: int | None, seed: int
) -> bool:
    """Score everything, ablate what was not generated, write the report; misses explained beside it count as known."""
    explanations = read_explanations(path.with_suffix(".yaml"))
    results = [score_case(case, analyser) for case in cases]
    kept = [case for case in cases if case.corpus != GENERATED] if ablate is not None else []
    outcomes = [outcome for case in kept for outcome in ablate_case(case, ablate or "all", analyser)]
    given = " ".join(["sentinel score tests/corpus", *([f"--generate {generate} --seed {seed}"] if generate else [])])
    command_line = f"{given}{f' --ablate {ablate}' if ablate else ''} --markdown {path.name}"
    path.write_text(report(results, outcomes, explanations, command_line), encoding="utf-8")
    click.echo("\n".join(totals(summarise(results))))
    return any(not result.mark.right and result.name not in explanations for result in results)


def _ablate(cases: Sequence[Case], analyser: Analyse, kind: AblationKind, as_json: bool, wrong_only: bool) -> bool:
    outcomes = []
    for case in cases:
        for outcome in ablate_case(case, kind, analyser):
            outcomes.append(outcome)
            if not as_json and not (wrong_only and outcome.outcome != "wrong"):
                click.echo(f"{outcome.outcome:<9} {outcome.case:<34} without {outcome.without}: {outcome.says}")
    counts = tally(outcomes)
    if as_json:
        click.echo(msgspec.json.encode({"counts": counts, "outcomes": outcomes}))
    else:
        click.echo("\n" + ", ".join(f"{name} {count}" for name, count in counts.items()))
    return bool(counts["wrong"])
