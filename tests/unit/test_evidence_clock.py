"""Documents whose clocks do not say their zone end up on one scale, with an honest error."""

from calendar import timegm

from sentinel.collector import Line
from sentinel.evidence.clock import Clock, times_in
from sentinel.evidence.snapshots import Modified, nearest_day, time_in_name
from sentinel.evidence.stamps import Stamp, stamp_of, year_for

NOON = float(timegm((2026, 11, 29, 12, 0, 0)))


def engine(at_s: float, frame_s: float | None = None, number: int = 1) -> Line:
    hours, rest = divmod(int(at_s) % 86_400, 3600)
    day = f"2026-11-{int(at_s - NOON + 43_200) // 86_400 + 29:02d}"
    return Line(number, f"[{day} {hours:02d}:{rest // 60:02d}:{rest % 60:02d} TP0] Decode batch", frame_s)


def clock_of(documents: dict[str, list[Line]], hosts: dict[str, str | None] | None = None) -> Clock:
    return Clock({name: times_in(lines, None) for name, lines in documents.items()}, hosts or dict.fromkeys(documents))


def test_times_of_all_dialects_are_found() -> None:
    """Else years and zones could not be told from logs of that program."""
    at = float(timegm((2026, 11, 29, 10, 0, 10)))
    dated = {
        "[2026-11-29 10:00:10 TP0] x": at,
        "2026/11/29 10:00:10.500, 0, 100 %": at + 0.5,
        "[Sun Nov 29 10:00:10 2026] NVRM: x": at,
    }
    assert {text: stamp_of(text, 1999) for text in dated} == {text: Stamp(wall) for text, wall in dated.items()}
    short = Stamp(at, None, True, 11, 29)
    for text in (
        "(APIServer pid=1) INFO 11-29 10:00:10 [a.py:1] x",
        "Nov 29 10:00:10 gpu1 kernel: x",
        "[E1129 10:00:10 x]",
    ):
        assert stamp_of(text, 2026) == short
    assert stamp_of("2026-11-29T10:00:10Z x", 1999) == Stamp(at, 0.0)
    assert stamp_of("2026-11-29T10:00:10+0530 gpu1 kernel: x", 1999) == Stamp(at, 19_800.0)
    assert stamp_of("GPU 00:1a:00 at 1:2:3 of 99:99:99", 2026) is None


def test_years_are_completed_from_the_nearest_known_time() -> None:
    """Else a hang on New Year's Eve would be judged as a year of silence."""
    new_year = float(timegm((2027, 1, 1, 0, 5, 0)))
    assert (year_for(12, 31, new_year), year_for(1, 1, new_year)) == (2026, 2027)
    clock = clock_of({"a.log": [engine(NOON)], "vllm.log": [Line(1, "INFO 11-29 10:00:10 [a.py:1] x")]})
    assert clock.year("vllm.log") == 2026


def test_the_year_is_found_in_files_whose_own_times_were_lost_in_an_archive() -> None:
    """Else a log that prints no year lies half a century before the scrapes beside it, and a stall looks like work."""
    short, epoch = [Line(1, "INFO 11-29 10:00:10 [a.py:1] x")], 0.0
    beside_utc = {
        "vllm.log": times_in(short, epoch),
        "health.csv": times_in([Line(1, "2026-11-29T10:00:10Z x")], epoch),
    }
    beside_name = {"vllm.log": times_in(short, epoch), "metrics-20261129T100010Z.prom": times_in([], epoch)}
    for documents in (beside_utc, beside_name):
        assert Clock(documents, dict.fromkeys(documents)).year("vllm.log") == 2026


def test_a_log_across_new_year_stays_in_order() -> None:
    """Else the lines after midnight would come a year before those before it."""
    lines = [Line(1, "INFO 12-31 23:59:50 [a.py:1] x"), Line(2, "INFO 01-01 00:00:10 [a.py:1] x")]
    times = times_in(lines, float(timegm((2027, 1, 1, 0, 1, 0))))
    clock = Clock({"v": times}, {"v": None})
    before, after = (float(timegm((clock.year("v"), *rest))) for rest in ((12, 31, 23, 59, 50), (1, 1, 0, 0, 10)))
    assert clock.right_year("v", after) - clock.right_year("v", before) == 20.0


def test_the_zone_of_a_container_log_is_told_by_its_own_text() -> None:
    """Else a kernel log in local time and a container log in UTC would lie hours apart."""
    lines = [engine(NOON + n, NOON + n - 7200 + 0.2) for n in range(5)]
    clock = clock_of({"docker.log": lines})
    assert (clock.shift_s("docker.log"), clock.zone_s(None)) == (7200.0, 7200.0)
    assert 1.0 < clock.error_s < 1.5


def test_framed_sources_without_text_times_use_the_zone_of_their_host() -> None:
    """Else NCCL lines of a container in another zone would end up before the start of the engine."""
    documents = {
        "a/engine.log": [engine(NOON, NOON - 19_800)],
        "a/nccl.log": [Line(1, "gpu1:1:1 [0] NCCL INFO x", NOON - 19_800)],
        "b/engine.log": [engine(NOON, NOON)],
        "b/nccl.log": [Line(1, "gpu2:1:1 [0] NCCL INFO x", NOON)],
    }
    clock = clock_of(documents, {name: name[0] for name in documents})
    assert (clock.shift_s("a/nccl.log"), clock.shift_s("b/nccl.log")) == (19_800.0, 0.0)


def test_a_utc_journal_beside_local_logs_is_laid_over_them() -> None:
    """Else an out-of-memory kill would seem to come hours after the silence that it caused."""
    texts = [engine(NOON + n * 60) for n in range(30)]
    journal = [Line(1, "[  100.000000] Out of memory: Killed process 1", NOON + 600 - 7200)]
    near = clock_of({"e.log": texts, "j.json": journal})
    assert near.shift_s("j.json") == 7200.0
    assert near.error_s >= 900.0 and near.notes
    same = clock_of({"e.log": texts, "j.json": [Line(1, "[  100.000000] x", NOON + 600)]})
    assert same.shift_s("j.json") == 0.0 and same.error_s == 1.0


def test_text_that_says_utc_is_moved_to_the_hosts_scale() -> None:
    """Else probes stamped in UTC would not line up with the engine's own lines."""
    documents = {
        "docker.log": [engine(NOON, NOON - 3600)],
        "probe.csv": [Line(1, "2026-11-29T11:00:00Z,/health,200,3.1")],
    }
    clock = clock_of(documents)
    assert (clock.text_shift_s("probe.csv"), clock.text_shift_s("docker.log")) == (3600.0, 0.0)


def test_several_hosts_widen_the_error() -> None:
    """Else two hosts' clocks would be trusted to the second."""
    documents = {"a": [engine(NOON)], "b": [engine(NOON)]}
    assert clock_of(documents, {"a": "a", "b": "b"}).error_s > clock_of(documents).error_s


def test_snapshot_times_come_from_names_that_fit_the_evidence() -> None:
    """Else two scrapes could not be put in order, or a pid in a name would be taken for a time of day."""
    span = (NOON, NOON + 600)
    assert time_in_name("m/metrics-20261129T120500Z.prom", *span, 3600.0) == NOON + 300 + 3600
    assert time_in_name("TP5.120502.txt", *span, 0.0) == NOON + 302
    assert time_in_name("stack_1795953900.txt", *span, 0.0) == NOON + 300
    assert time_in_name("core_031527.txt", *span, 0.0) is None
    assert time_in_name("nccl.gpu1.4411.log", *span, 0.0) is None
    assert time_in_name("metrics-20261299T999999Z.prom", *span, 0.0) is None


def test_a_time_of_day_gets_the_day_of_the_evidence() -> None:
    """Else a dump taken just after midnight would lie a day before the silence."""
    late = float(timegm((2026, 11, 29, 23, 50, 0)))
    assert nearest_day(120.0, late - 3600, late) == timegm((2026, 11, 30, 0, 2, 0))
    assert nearest_day(86_000.0, late - 3600, late) == timegm((2026, 11, 29, 23, 53, 20))


def test_modification_times_count_only_when_two_logs_prove_them() -> None:
    """Else unpacking an archive would date every dump to the moment of unpacking."""

    def modified(first: float, second: float) -> float | None:
        documents = {
            "a.log": times_in([engine(NOON)], first),
            "b.log": times_in([engine(NOON + 60)], second),
            "stack.txt": times_in([Line(1, "Process 1: x")], NOON + 100 - 3600),
        }
        return Modified(Clock(documents, dict.fromkeys(documents))).time_of("stack.txt")

    assert modified(NOON - 3600 + 0.5, NOON + 60 - 3600 + 0.9) == NOON + 100
    assert modified(NOON + 5000, NOON + 5000) is None
    assert modified(NOON - 3600, NOON - 7200) is None
