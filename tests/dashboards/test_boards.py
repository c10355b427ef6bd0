"""Boards: the committed JSON is what the code makes, and follows the rules that Grafana's own linter checks."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest

from dashboards.boards import BOARDS
from dashboards.build import FOLDER
from dashboards.panels import rendered
from sentinel.metrics.registry import BY_NAME
from tests.dashboards.promql import SERIES, complaints, filled, selectors
from tests.dashboards.test_rules import RECORDED, RULES

MADE: dict[str, dict[str, Any]] = {
    board.uid: json.loads((FOLDER / f"{board.uid}.json").read_text()) for board in BOARDS
}


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All panels that show something."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or ()
        else:
            yield panel


def expressions(board: dict[str, Any]) -> Iterator[str]:
    """All queries, those of annotations included."""
    yield from (target["expr"] for panel in panels(board) for target in panel["targets"])
    yield from (mark["expr"] for mark in board["annotations"].get("list", ()))


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_the_committed_board_is_what_the_code_makes(board: Any) -> None:
    """False: a change of the code reaches nobody; `python -m dashboards.build` writes the files."""
    assert (FOLDER / f"{board.uid}.json").read_text() == rendered(board)


def test_no_board_is_left_over() -> None:
    """False: a board that no code makes any more is still imported by users."""
    assert {path.stem for path in FOLDER.iterdir()} == {board.uid for board in BOARDS}
    assert len(BOARDS) == 5


@pytest.mark.parametrize("uid", sorted(MADE))
def test_a_board_follows_the_rules_of_the_linter(uid: str) -> None:
    """False: the board works only in the Grafana in which it was made."""
    board = MADE[uid]
    variables = {variable["name"]: variable for variable in board["templating"]["list"]}
    assert board["uid"] == uid and board["editable"] is False and board["description"]
    assert variables["datasource"]["type"] == "datasource" and {"job", "instance"} <= variables.keys()
    for variable in variables.values():
        assert variable["type"] != "query" or (
            variable["refresh"] == 2 and variable["datasource"]["uid"] == "${datasource}"
        )
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places), "panels lie on top of each other"
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    for panel in panels(board):
        name = panel["title"]
        assert name and panel["description"] and panel["fieldConfig"]["defaults"]["unit"], name
        assert panel["datasource"]["uid"] == "${datasource}" and panel["targets"], name
        letters = [target["refId"] for target in panel["targets"]]
        assert len(set(letters)) == len(letters) and all(target["legendFormat"] for target in panel["targets"]), name
        for used in re.findall(r"\$\{?(\w+)\}?", json.dumps(panel["targets"])):
            assert used in variables or used in ("__rate_interval", "__range"), (name, used)


@pytest.mark.parametrize("uid", sorted(MADE))
def test_every_query_is_valid_and_asks_only_for_what_is_exposed(uid: str) -> None:
    """False: a panel is empty for ever, and looks like calm."""
    for expression in expressions(MADE[uid]):
        assert list(complaints(filled(expression), RECORDED)) == [], expression


@pytest.mark.parametrize("uid", sorted(MADE))
def test_rates_fit_the_resolution_and_counters_are_never_shown_bare(uid: str) -> None:
    """False: zooming out makes spikes vanish, or a panel shows an ever rising line."""
    for expression in (target["expr"] for panel in panels(MADE[uid]) for target in panel["targets"]):
        windows = re.findall(r"\[([$\w]+)\]", expression)
        assert all(window in ("$__rate_interval", "$__range") for window in windows), expression
        assert bare_counters(filled(expression)) == [], expression


def bare_counters(expression: str) -> list[str]:
    """Our counters that an expression asks for outside a range."""
    found: list[str] = []
    ranged: list[str] = []

    def visit(node: object) -> None:
        if isinstance(node, promql_parser.MatrixSelector):
            ranged.append(node.vector_selector.name or "")
        elif isinstance(node, promql_parser.VectorSelector) and node.name in SERIES:
            kind = SERIES[node.name].kind
            if kind in ("counter", "histogram"):
                found.append(node.name)

    promql_parser.walk(promql_parser.parse(expression), visit)
    return [name for name in found if name not in ranged]


def test_a_bare_counter_is_found() -> None:
    """False: the check above cannot fail."""
    assert bare_counters("sum(sentinel_dumps_total)") == ["sentinel_dumps_total"]
    assert bare_counters("sum(rate(sentinel_dumps_total[1m]))") == []


def test_every_metric_is_shown_or_alerted_on() -> None:
    """False: a number is measured on every host and nobody ever sees it."""
    asked = {
        SERIES[selector.name].name
        for expression in [
            *(rule["expr"] for rule in RULES),
            *(e for board in MADE.values() for e in expressions(board)),
        ]
        for selector in selectors(filled(expression))
        if selector.name in SERIES
    }

    assert BY_NAME.keys() - asked == set()
