"""What a panel and a board are here, and how they become Grafana's JSON through its own SDK (Grafana 11.6)."""

import json
from dataclasses import dataclass
from typing import Literal

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement, TooltipDisplayMode
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableHide,
    VariableModel,
    VariableOption,
    VariableRefresh,
    VariableSort,
)

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
AGENT = 'job=~"$job", instance=~"$instance"'
ENGINE = f'{AGENT}, engine=~"$engine"'
NODE = 'instance=~"$node(:[0-9]+)?"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `queries`: (expression, legend). `width` in 24ths; `unit` as Grafana names it."""

    title: str
    says: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    kind: Literal["lines", "number"] = "lines"
    width: int = 12
    height: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """One dashboard: rows of panels. `marks`: (name, expression) of annotations."""

    uid: str
    title: str
    says: str
    rows: tuple[tuple[str, tuple[Panel, ...]], ...]
    engines: bool = False
    nodes: bool = False
    marks: tuple[tuple[str, str], ...] = ()


def panel(title: str, says: str, unit: str, *queries: tuple[str, str]) -> Panel:
    """Lines over time."""
    return Panel(title=title, says=says, unit=unit, queries=queries)


def number(title: str, says: str, unit: str, expression: str) -> Panel:
    """The newest value."""
    return Panel(title=title, says=says, unit=unit, queries=((expression, title),), kind="number", width=4, height=4)


def quantile(share: float, metric: str, where: str, over: str = "$__rate_interval", by: str = "") -> str:
    """Expression: a quantile of one of our histograms, over all that `where` selects, or by a label of it."""
    kept = f"{by}, le" if by else "le"
    return f"histogram_quantile({share}, sum by ({kept}) (rate({metric}_bucket{{{where}}}[{over}])))"


def mean(metric: str, where: str, by: str) -> str:
    """Expression: the mean of a histogram over the range that is looked at."""
    total, count = (f"sum by ({by}) (increase({metric}_{part}{{{where}}}[$__range]))" for part in ("sum", "count"))
    return f"{total} / ({count} > 0)"


def either(engine_names: tuple[str, str], how: str) -> str:
    """Expression: a metric that SGLang and vLLM name differently."""
    names = "|".join(f"${{engine_prefix}}{name}" for name in engine_names)
    return f'{how} by (instance) ({{__name__=~"{names}"}})'


def rendered(board: Board) -> str:
    """The board as Grafana's JSON, byte for byte the same every time."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.says)
        .tags(["sentinel"])
        .timezone("browser")
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .readonly()
        .variables(_variables(board))
    )
    for name, expression in board.marks:
        made.annotation(_Mark(name, expression))
    for title, panels in board.rows:
        made.with_row(dashboard.Row(title))
        for one in panels:
            made.with_panel(_panel(one))
    built = made.build()
    for count, placed in enumerate(built.panels or [], 1):
        placed.id_val = count
    return json.dumps(built, cls=JSONEncoder, sort_keys=True, indent=1) + "\n"


def _panel(one: Panel) -> "timeseries.Panel | stat.Panel":
    made = stat.Panel() if one.kind == "number" else _lines()
    made.title(one.title).description(one.says).unit(one.unit).datasource(SOURCE)
    made.span(one.width).height(one.height)
    for letter, (expression, legend) in zip("ABCDEFGH", one.queries, strict=False):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id(letter).datasource(SOURCE)
        made.with_target(query.instant() if one.kind == "number" else query.range())
    return made


def _lines() -> timeseries.Panel:
    legend = common.VizLegendOptions().show_legend(True).placement(LegendPlacement.BOTTOM)
    made = timeseries.Panel().tooltip(common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI)).fill_opacity(8)
    return made.legend(legend.display_mode(LegendDisplayMode.LIST))


def _variables(board: Board) -> list[Builder[VariableModel]]:
    found: list[Builder[VariableModel]] = [
        dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        _query("job", "Job", "label_values(sentinel_build_info, job)", hidden=True),
        _query("instance", "Agent", 'label_values(sentinel_build_info{job=~"$job"}, instance)'),
    ]
    if board.engines:
        found.append(_query("engine", "Engine", f"label_values(sentinel_engine_info{{{AGENT}}}, engine)"))
        prefixes = "sglang:, vllm:, sglang_, vllm_"
        prefix = dashboard.CustomVariable("engine_prefix").label("Metrics of the engine").values(prefixes)
        found.append(prefix.current(VariableOption(text="sglang:", value="sglang:", selected=True)))
    if board.nodes:
        hosts = _query("node", "Host", 'label_values(sentinel_build_info{job=~"$job"}, instance)')
        found.append(hosts.regex("/([^:]+)/"))
    return found


def _query(name: str, label: str, query: str, *, hidden: bool = False) -> dashboard.QueryVariable:
    made = dashboard.QueryVariable(name).label(label).query(query).datasource(SOURCE)
    made = made.refresh(VariableRefresh.ON_TIME_RANGE_CHANGED).sort(VariableSort.ALPHABETICAL_ASC)
    made = made.multi(True).include_all(True).all_value(".+")
    made = made.current(VariableOption(text="All", value="$__all", selected=True))
    return made.hide(VariableHide.HIDE_VARIABLE) if hidden else made


class _Mark(dashboard.AnnotationQuery):
    """An annotation from a query; the SDK's model knows the field, its builder does not."""

    def __init__(self, name: str, expression: str) -> None:
        super().__init__()
        self.name(name).datasource(SOURCE).enable(True).icon_color("red")
        self._internal.expr = expression
