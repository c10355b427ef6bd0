"""Reads short texts with one parser, as the loader would, and builds pictures from observations."""

from collections.abc import Iterable
from typing import Any, TypeVar

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.core.fact import Fact, FactSpec
from sentinel.core.picture import Picture
from sentinel.model.observation import AnyObservation, Decode, GpuSample, Observation, Origin

T = TypeVar("T", bound=Observation)
HERE = Origin("made.txt", 1)


def read(parser: LogParser, text: str, *, name: str = "made.txt", host: str | None = None) -> list[Observation]:
    """All observations of a text that the parser recognises."""
    assert parser.recognise(Sample(text[: 64 << 10])), "not recognised"
    feed = parser.start(Context(name=name, year=2026, host=host))
    lines = [Line(number, line) for number, line in enumerate(text.splitlines(), 1)]
    return [*feed(lines), *feed([])]


def of(kind: type[T], observations: Iterable[Observation]) -> list[T]:
    return [seen for seen in observations if isinstance(seen, kind)]


def picture(*observations: Observation) -> Picture:
    made = Picture()
    for seen in observations:
        made.note(seen)
    return made


def fact(specs: tuple[FactSpec, ...], name: str, made: Picture) -> Fact:
    return next(spec for spec in specs if spec.name == name).compute(made)


def decode_until(t0_s: float, host: str | None = None) -> list[AnyObservation]:
    """Progress lines every second up to T0."""
    return [
        Decode(origin=HERE, at_s=t0_s - 10 + step, host=host, engine="sglang", running=8, rank=0) for step in range(11)
    ]


def gpu(index: int, at_s: float, util: float, *, host: str | None = None, **more: Any) -> GpuSample:
    values: dict[str, object] = {"mem_used_mib": 90_000.0, "sm_mhz": 1800.0, "power_w": 140.0, **more}
    return GpuSample(origin=HERE, index=index, at_s=at_s, host=host, util_percent=util, **values)  # type: ignore[arg-type]
