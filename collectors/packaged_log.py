"""Log of the co-packaged engine: SGLang's dialect, opened by a line that names the engine and its settings.

`[2026-11-29 09:14:02 TP0] sentinel-engine version=0.1.0 args=(tp_size=2, watchdog_timeout=300)`; progress lines carry
additional numbers of the row store, which land in `extra` like any other key.
"""

import re
from collections.abc import Iterable, Iterator

from sentinel.collector import Context, Line, LogParser, Sample
from sentinel.collectors._engine_lines import Said, Who, settings, wall_s
from sentinel.collectors.sglang_log import PACKAGED
from sentinel.collectors.sglang_log import Feed as SglangFeed
from sentinel.model.observation import Observation, Origin

FORMATS: dict[str, re.Pattern[str]] = {}


def recognise(sample: Sample) -> bool:
    """Whether the sample names this engine; SGLang's own parser then leaves the file alone."""
    return PACKAGED.search(sample.head) is not None or PACKAGED.search(sample.tail) is not None


class Feed:
    """One stream of lines, read by SGLang's parser under this engine's name."""

    def __init__(self, context: Context) -> None:
        self.name, self.host = context.name, context.host
        self._sglang = SglangFeed(context, engine="packaged")

    def __call__(self, lines: Iterable[Line]) -> Iterator[Observation]:
        """Observations of these lines; no lines at all flush what is held back."""
        empty = True
        for line in lines:
            empty = False
            if (opened := PACKAGED.match(line.text)) is not None:
                who = Who(Origin(self.name, line.number), wall_s(opened["ts"]), self.host or line.host)
                yield Said(phase="start", edge="begin").as_phase(who, "packaged", line.text)
                yield Said("server_args", fields=settings(line.text)).as_notice(who, "packaged", line.text)
                yield Said("version", fields={"engine": opened["version"]}).as_notice(who, "packaged", line.text)
            yield from self._sglang([line])
        if empty:
            yield from self._sglang([])


PARSER = LogParser(name="packaged_log", recognise=recognise, start=Feed)
