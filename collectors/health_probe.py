"""Probes of the engine from outside: CSV of timed probes, `curl` transcripts, request logs of a gateway.

The CSV has the header `time,url,status,milliseconds` with an ISO time and, for a failed probe, the error in place of
the status. A transcript has `$ curl …` lines and what curl printed. A gateway writes one JSON object a request, or
`TIME LEVEL text key=value …`.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import NamedTuple

import msgspec

from sentinel.collector import Blob, Context, DocumentParser, Line, Sample
from sentinel.collectors._engine_lines import TEXT_MAX, Said, Who
from sentinel.model.observation import HealthProbe, NoticeKind, Observation, Origin

FORMATS: dict[str, re.Pattern[str]] = {}

CSV_HEAD = re.compile(r"\A\ufeff?\s*time\s*,\s*url\s*,\s*status\s*,\s*(?:milliseconds|ms|latency_ms)\s*$", re.MULTILINE)
CURL = re.compile(
    r"^(?:(?P<clock>\d\d:\d\d:\d\d) )?[\w@.:~/-]{0,60}[$#] (?:date; ?)?(?:time )?curl (?P<args>.{0,2000})$",
    re.MULTILINE,
)
_URL = re.compile(r"(?:https?://[^\s/'\"]{1,200}|[\w.-]{1,200}:\d{1,5})/[\w./?=&%-]*")
_CODE = re.compile(
    r"^(?:<? ?HTTP/[\d.]+ )?(?P<status>[1-5]\d\d)(?: (?P<seconds>\d{1,18}(?:\.\d+)?)s?)?"
    r"(?: [A-Z][\w ]*)?$"
)
_CURL_ERROR = re.compile(r"^curl: \((?P<code>\d{1,18})\) (?P<text>.{0,300})$")
_AFTER = re.compile(r"after (?P<ms>\d{1,18}) (?:milliseconds|ms)")
_PAUSED = re.compile(r'"is_(?P<state>paused|sleeping)" ?: ?(?P<value>true|false)')
_DATE = re.compile(
    r"^[A-Z][a-z]{2} +(?P<month>[A-Z][a-z]{2}) +(?P<day>\d{1,2}) (?P<clock>\d\d:\d\d:\d\d)(?: [AP]M)? \S+ "
    r"(?P<year>\d{4})$"
)
_MONTHS = {
    name: number
    for number, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], start=1
    )
}
_GATEWAY = re.compile(
    r"(?m)^(?P<ts>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,16}) (?P<level>[A-Z]{3,8}) (?P<text>.{0,400}\brid=.{0,400})$"
)
_PAIR = re.compile(r"\b(?P<key>[a-z_]{2,30})=(?P<value>\S{1,120})")
_TIMED_OUT = re.compile(r"timed out(?: after (?P<seconds>\d{1,18}(?:\.\d+)?) ?s)?")


def local_s(text: str) -> float | None:
    """Seconds of an ISO time, its zone as printed; None when that is no time."""
    try:
        at = datetime.fromisoformat(text.strip())
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


# --- CSV of probes ---------------------------------------------------------------------------------------------


def recognise_csv(sample: Sample) -> bool:
    """Whether the document starts with the header of a probe table."""
    return CSV_HEAD.match(sample.head) is not None


def parse_csv(blob: Blob, context: Context) -> Iterator[Observation]:
    """One probe a row; rows that are no probe are left out."""
    for line in blob.lines():
        cells = line.text[:TEXT_MAX].split(",")
        if len(cells) < 4 or (at_s := local_s(cells[0])) is None:
            continue
        # An error text may hold commas: it reaches from the third cell to the last but one.
        status, took = ",".join(cells[2:-1]).strip(), _number(cells[-1])
        answered = int(status) if status.isdecimal() and len(status) == 3 else None
        yield HealthProbe(
            origin=Origin(context.name, line.number), at_s=at_s, host=context.host, url=cells[1].strip(),
            status=answered, latency_ms=took, error="" if answered is not None else status[:200],
        )  # fmt: skip


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if value - value == 0.0 else None


# --- curl transcripts ------------------------------------------------------------------------------------------


def recognise_curl(sample: Sample) -> bool:
    """Whether the document is a short transcript with curl commands at a shell prompt."""
    return CURL.search(sample.head) is not None


def parse_curl(blob: Blob, context: Context) -> Iterator[Observation]:
    """The answer, or the lack of one, to each curl command; states that the engine tells of itself."""
    asked: Question | None = None
    at_s: float | None = None
    for line in blob.lines():
        text = line.text[:TEXT_MAX]
        if (found := CURL.match(text)) is not None:
            url = _URL.search(_bare(found["args"]))
            asked = None if url is None else Question(line, url[0], _clock_s(found["clock"]))
        elif (date := _DATE.match(text)) is not None:
            at_s = _date_s(date)
        elif (state := _PAUSED.search(text)) is not None:
            yield _own_state(state, text, Who(Origin(context.name, line.number), at_s, context.host))
        elif asked is not None and (probe := _answer(text, asked, at_s, context)) is not None:
            yield probe
            asked = None


class Question(NamedTuple):
    """A curl command: where it stands, what it asks, and the time of day in the prompt, which prints no date."""

    line: Line
    url: str
    clock_s: float | None


def _clock_s(clock: str | None) -> float | None:
    if clock is None:
        return None
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return hours * 3600.0 + minutes * 60.0 + seconds


def _bare(args: str) -> str:
    """The command without quoted texts such as the format of `-w`, and up to the first pipe."""
    return re.sub(r"\"[^\"]*\"|'[^']*'", lambda quoted: quoted[0] if "://" in quoted[0] else "", args).partition("|")[0]


def _date_s(found: re.Match[str]) -> float | None:
    month = _MONTHS.get(found["month"], 0)
    return local_s(f"{found['year']}-{month:02}-{int(found['day']):02}T{found['clock']}")


def _own_state(found: re.Match[str], text: str, who: Who) -> Observation:
    asleep, active = found["state"] == "sleeping", found["value"] == "false"
    kinds: tuple[NoticeKind, NoticeKind] = ("wake", "sleep") if asleep else ("resume", "pause")
    return Said(kinds[0] if active else kinds[1], fields={"source": "state"}).as_notice(who, "unknown", text)


def _answer(text: str, asked: Question, at_s: float | None, context: Context) -> HealthProbe | None:
    probe = partial(
        HealthProbe, origin=Origin(context.name, asked.line.number), at_s=at_s,
        clock_s=asked.clock_s if at_s is None else None, host=context.host, url=asked.url,
    )  # fmt: skip
    if (failed := _CURL_ERROR.match(text)) is not None:
        after = _AFTER.search(failed["text"])
        took = float(after["ms"][:12]) if after is not None else None
        return probe(status=None, latency_ms=took, error=failed["text"])
    if (found := _CODE.match(text.strip())) is not None:
        seconds = found["seconds"]
        return probe(status=int(found["status"]), latency_ms=None if seconds is None else float(seconds[:12]) * 1000.0)
    return None


# --- gateway ---------------------------------------------------------------------------------------------------


class Asked(msgspec.Struct):
    """One request as a gateway logs it; `status` null while it has no answer."""

    ts: str
    rid: str
    status: int | None = None
    ms: float | None = None
    path: str = ""
    prompt_tokens: int | None = None
    max_tokens: int | None = None
    response_format: str | None = None
    schema_bytes: int | None = None
    schema_depth: int | None = None


def recognise_gateway(sample: Sample) -> bool:
    """Whether the first lines are requests in a gateway's form."""
    first = sample.head.lstrip().partition("\n")[0]
    return _asked(first) is not None or _GATEWAY.match(first) is not None


def parse_gateway(blob: Blob, context: Context) -> Iterator[Observation]:
    """One notice a request: done, failed, timed out, or still without an answer."""
    for line in blob.lines():
        text = line.text[:TEXT_MAX]
        if (asked := _asked(text)) is not None:
            who = Who(Origin(context.name, line.number), local_s(asked.ts), context.host)
            fields = {key: str(value) for key, value in msgspec.to_builtins(asked).items() if value not in (None, "")}
            kind: NoticeKind = (
                "request" if asked.status is None else "request_done" if asked.status < 400 else "http_error"
            )
            yield Said(kind, fields=fields).as_notice(who, "gateway", f"request {asked.rid}")
        elif (found := _GATEWAY.match(text)) is not None:
            who = Who(Origin(context.name, line.number), local_s(found["ts"]), context.host)
            fields = {hit["key"]: hit["value"] for hit in _PAIR.finditer(found["text"])}
            late = _TIMED_OUT.search(found["text"])
            if late is not None and late["seconds"] is not None:
                fields["after_s"] = late["seconds"]
            yield Said("other" if late is None else "request_abort", fields=fields).as_notice(
                who, "gateway", found["text"]
            )


def _asked(text: str) -> Asked | None:
    if not text.startswith("{") or '"rid"' not in text:
        return None
    try:
        return msgspec.json.decode(text, type=Asked)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


PARSERS = (
    DocumentParser(name="health_probe", recognise=recognise_csv, parse=parse_csv),
    DocumentParser(name="curl_transcript", recognise=recognise_curl, parse=parse_curl),
    DocumentParser(name="gateway_log", recognise=recognise_gateway, parse=parse_gateway),
)
