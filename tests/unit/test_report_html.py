"""The report file: complete, self-contained, and safe to open whatever the evidence holds."""

from collections.abc import Iterator
from html.parser import HTMLParser

import pytest

from sentinel.core.fact import Fact, unknown
from sentinel.core.picture import Picture
from sentinel.model.observation import AnyObservation, Enqueues, GpuSample, KernelEvent, NcclComm, Origin
from sentinel.report import html, plots, ranks, stacktree, timeline, wavefront
from sentinel.report.axis import Axis, focus
from tests.unit import report_cases as cases
from tests.unit import report_pictures as pictures

PAYLOADS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "'--><svg/onload=alert(1)>",
    "</style><script>alert(1)</script>",
    "{{ 7*7 }}{% raw %}",
    "\x1b[2J\x00\u202e\udc80\u2028",
    "javascript:alert(1)",
    "]]><!--",
)
LOADING = {"src", "href", "srcset", "data", "action", "formaction", "poster", "background", "xlink:href"}


class Page(HTMLParser):
    """Collects elements, attributes and text of a page; balanced says whether elements close in order."""

    VOID = frozenset({"meta", "link", "br", "img", "hr", "input"})

    def __init__(self, source: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.stack: list[str] = []
        self.balanced = True
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.stack or self.stack.pop() != tag:
            self.balanced = False

    def handle_data(self, data: str) -> None:
        if self.stack and self.stack[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def attributes(page: Page) -> Iterator[tuple[str, str, str]]:
    for tag, given in page.elements:
        for name, value in given.items():
            yield tag, name, value or ""


@pytest.fixture(params=["callback_stall", "divergence", "blind"])
def case(request: pytest.FixtureRequest) -> cases.Case:
    made: cases.Case = getattr(cases, request.param)()
    return made


def test_the_page_is_well_formed_and_holds_the_verdict(case: cases.Case) -> None:
    """False: the browser repairs the page by guessing, and parts of the verdict vanish."""
    page = Page(html.render(case, "incident"))

    assert page.balanced and not page.stack
    assert case.verdict.summary in page.words
    assert case.verdict.kind in page.words


def test_nothing_in_the_page_runs_or_loads(case: cases.Case) -> None:
    """False: opening a report on an air-gapped or a hostile network leaks or breaks it."""
    page = Page(html.render(case, "incident"))

    assert not {"script", "iframe", "object", "embed", "base", "form"} & {tag for tag, _ in page.elements}
    for _, name, value in attributes(page):
        assert not name.startswith("on")
        assert name not in LOADING or value == "data:,"
    policy = next(given["content"] for tag, given in page.elements if given.get("http-equiv"))
    assert policy is not None and policy.startswith("default-src 'none'")


@pytest.mark.parametrize("payload", PAYLOADS)
def test_evidence_cannot_become_markup(payload: str) -> None:
    """False: a log line of the incident runs code in the browser of whoever opens the report."""
    calm = Page(html.render(cases.hostile("calm"), "calm"))
    source = html.render(cases.hostile(payload), payload)
    page = Page(source)

    assert page.balanced
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in calm.elements]
    assert [sorted(given) for _, given in page.elements] == [sorted(given) for _, given in calm.elements]
    source.encode()
    assert not any(char in source for char in "\x00\x1b\u202e\u2028")


def test_the_timeline_marks_t0_and_tells_the_moments_that_matter() -> None:
    """False: the first thing that went wrong cannot be found in the report."""
    page = Page(html.render(cases.divergence(), "incident"))

    assert "T0, last progress" in page.words
    assert "Scheduler watchdog timeout" in page.words
    assert "socketProgress: Connection closed by remote peer" in page.words


def test_the_wavefront_shows_who_is_behind_and_whom_nobody_traced() -> None:
    """False: the lagging rank looks like its peers, or a rank without a trace looks healthy."""
    (front,), cut = wavefront.fronts(pictures.picture_of(pictures.divergence_observations(16)))
    tones = {cell.rank: cell.tone for cell in front.cells}

    assert cut == 0
    assert [rank for rank, tone in tones.items() if tone == "behind"] == [5]
    assert [rank for rank, tone in tones.items() if tone == "blind"] == [7]
    assert front.rows[0].who == "rank 5" and front.rows[0].delta == -1
    assert front.blind == "7"


@pytest.mark.parametrize(("totals", "tones"), [
    ((10, 10, 11), ("front", "front", "ahead")),
    ((10, 11), ("behind", "front")),
    ((10, 10), ("front", "front")),
])  # fmt: skip
def test_a_rank_is_ahead_only_of_a_majority(totals: tuple[int, ...], tones: tuple[str, ...]) -> None:
    """False: of two ranks that differ, the one that went on is marked as the odd one."""
    picture = Picture()
    for rank, total in enumerate(totals):
        for seen in traced(rank, len(totals), total):
            picture.note(seen)
    (front,), _ = wavefront.fronts(picture)

    assert tuple(cell.tone for cell in front.cells) == tones


def test_against_whom_a_rank_is_measured_follows_the_verdict() -> None:
    """False: of two ranks, the accused one that enqueued an extra call looks right and its victim looks behind."""
    picture = Picture()
    for rank, total in enumerate((10, 11)):
        for seen in traced(rank, 2, total):
            picture.note(seen)
    (front,), _ = wavefront.fronts(picture, accused={1})

    assert [cell.tone for cell in front.cells] == ["front", "ahead"]


def traced(rank: int, nranks: int, total: int) -> list[AnyObservation]:
    origin = Origin(f"{rank}.log", 1)
    joined = NcclComm(
        origin=origin, pid=rank + 1, comm="0x1", comm_id="0xc", comm_rank=rank, nranks=nranks, event="init_complete"
    )
    counted = Enqueues(
        origin=origin, pid=rank + 1, comm="0x1", nranks=nranks, total=total, by_op={"AllReduce": total},
        first_op_count=0, last_op_count=0, tail=(), digest_every=64, last_line=9,
    )  # fmt: skip
    return [joined, counted]


def test_ranks_at_a_glance_say_only_what_facts_say() -> None:
    """False: a rank without evidence reads like a healthy one, or the culprit stands among its victims."""
    case = cases.divergence()
    facts = {
        "collective.traced_ranks": Fact(value=tuple(rank for rank in range(16) if rank != 7)),
        "collective.behind_ranks": Fact(value=(5,)),
        "gpu.spinning_ranks": unknown("nvidia-smi"),
    }
    culprit, *others = ranks.table(case.verdict, case.picture, facts)

    assert (culprit.who, culprit.role, culprit.hosts, culprit.collectives) == ("5", "culprit", "node1", "behind")
    assert {row.role for row in others} == {"victim"}
    assert {row.who: row.collectives for row in others}["7"] == "no trace"
    assert all(row.gpu == "" for row in others)


def test_equal_stacks_are_one_branch_and_absent_ranks_are_named() -> None:
    """False: a reader compares sixteen dumps by eye, or takes a missing dump for a healthy rank."""
    (forest,) = stacktree.forests(pictures.picture_of(pictures.divergence_observations(16)))
    leaves = {row.frames[-1].partition(" ")[0]: row.who for row in forest.main if row.leaf}

    assert leaves["sample_tokens"].ranks == {5}
    assert leaves["all_reduce"].ranks == set(range(16)) - {3, 5, 9}
    assert dict(forest.absent) == {"3": "Permission denied: ptrace scope", "9": "no dump in the evidence"}
    fork = [row for row in forest.main if row.depth == 1]
    assert fork[0].who.ranks == {5}, "the odd one out is shown first"


def test_native_threads_are_folded_but_the_odd_one_keeps_its_own_branch() -> None:
    """False: the blocked callback thread drowns among idle pool threads."""
    forests = stacktree.forests(pictures.picture_of(pictures.callback_observations()))
    native = next(forest for forest in forests if forest.title == "Native stacks")
    leaves = {row.frames[-1]: (set(row.who.ranks), row.threads) for row in native.others if row.leaf}

    assert leaves["pthread_mutex_lock (libc.so.6)"] == ({1}, 1)
    assert leaves["pthread_cond_wait (libc.so.6)"] == ({0, 1}, 13)


def test_gpu_curves_share_one_power_scale_and_break_where_nothing_was_sampled() -> None:
    """False: a spinning GPU at 120 W looks like a computing one at 600 W, or a gap looks like a measurement."""
    picture = Picture()
    for at_s in [*range(20), *range(60, 80)]:
        for index, power in ((0, 120.0), (1, 600.0)):
            picture.note(
                GpuSample(origin=Origin("g", 1), at_s=float(at_s), index=index, util_percent=100.0, power_w=power)
            )
    panel = plots.panel(picture, Axis(0.0, 80.0))

    assert panel.top_w == 600.0
    assert [len(plot.power) for plot in panel.plots] == [2, 2]
    heights = [float(plot.power[0].split()[0].split(",")[1]) for plot in panel.plots]
    assert heights[1] == 0.0 and heights[0] == pytest.approx(panel.height * 0.8)


def test_one_wrong_clock_does_not_squeeze_the_story() -> None:
    """False: a kernel log of another year makes the ten minutes that matter one pixel wide."""
    seen = pictures.divergence_observations(2)
    seen.append(KernelEvent(origin=Origin("dmesg", 1), at_s=pictures.START_S - 3e7, event="xid", text="old"))
    picture = pictures.picture_of(seen)
    moments, untimed = timeline.moments(picture)
    axis = focus(picture, [moment.at_s for moment in moments])

    assert axis is not None and axis.length_s < 600
    assert timeline.chart(moments, untimed, axis).outside == 1


def test_without_any_time_there_is_no_timeline() -> None:
    """False: the report invents an order of events."""
    assert focus(Picture(), []) is None
    assert "Timeline" not in Page(html.render(cases.blind(), "x")).words


def test_a_flood_of_observations_gives_a_bounded_page() -> None:
    """False: a report of a long incident cannot be opened."""
    picture = Picture()
    for number in range(60_000):
        picture.note(
            KernelEvent(
                origin=Origin("k", number),
                at_s=number * 0.01,
                event="nvme",
                text=f"line {number}",
                host=f"h{number % 50}",
            )
        )
    case = cases.Case(verdict=cases.blind().verdict, picture=picture)

    assert len(html.render(case, "flood")) < 400_000


def test_facts_tell_value_place_and_what_is_missing() -> None:
    """False: a known fact cannot be looked up, or an unknown one reads like false."""
    words = Page(html.render(cases.callback_stall(), "x")).words

    assert "2 known, 1 unknown" in words
    assert "897 on both ranks nccl.0.log:1434" in words
    assert "kernel.readable unknown kernel log of node2" in words
