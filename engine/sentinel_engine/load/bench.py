"""Matrix, ladder and prose runs: several interleaved passes, every request recorded."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from .client import Answer, Ask, Client
from .workload import Prompts

Record = dict[str, Any]
Write = Callable[[Record], None]

PASSES_MIN = 2
PROSE_INPUT, PROSE_OUTPUT, PROSE_REPEATS = 946, 512, 5
PROSE_VARIETY_MIN = 0.05
FIGURES = ("ttft_s", "decode_tok_s", "total_decode_tok_s", "prefill_tok_s")


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """One point of a matrix: prompt tokens, forced output tokens, requests at once."""

    input_tokens: int
    output_tokens: int
    concurrency: int

    @property
    def name(self) -> str:
        return f"{self.input_tokens}in {self.output_tokens}out x{self.concurrency}"


def utc_now() -> str:
    """Now, for records: figures come from the monotonic clock."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def figures(answers: Sequence[Answer]) -> dict[str, float | None]:
    """Of one burst: medians per request; decode total and prefill over the whole burst.

    Total decode counts tokens after each first one, from the earliest first token to the last
    token; prefill counts all prompt tokens until the last first token.
    """
    good = [answer for answer in answers if answer.status == "ok" and answer.first_s is not None]
    total = prefill = None
    if good:
        firsts = [answer.first_s for answer in good if answer.first_s is not None]
        decode_s = max(answer.last_s for answer in good) - min(firsts)
        prefill_s = max(firsts) - min(answer.sent_s for answer in good)
        decoded = sum(answer.tokens - answer.first_tokens for answer in good)
        total = decoded / decode_s if decode_s > 0 else None
        prefill = sum(a.prompt_tokens for a in good) / prefill_s if prefill_s > 0 else None
    return {
        "ttft_s": _median([answer.ttft_s for answer in good]),
        "decode_tok_s": _median([answer.decode_tok_s for answer in good]),
        "total_decode_tok_s": total,
        "prefill_tok_s": prefill,
    }


def _request_record(answer: Answer, keep_text: bool = False) -> Record:
    record = asdict(answer) | {"ttft_s": answer.ttft_s, "decode_tok_s": answer.decode_tok_s}
    return record if keep_text else record | {"text": len(answer.text)}


class Burst(NamedTuple):
    """Answers to requests sent at once; `started` is in UTC, `wall_s` until the last had ended."""

    answers: list[Answer]
    started: str
    wall_s: float


async def burst(client: Client, prompts: Prompts, cell: Cell, name: str) -> Burst:
    """All requests of a cell at once, with prompts of their own that `name` decides."""
    asks = [
        Ask(prompts.make(cell.input_tokens, f"{name}/{k}"), cell.output_tokens)
        for k in range(cell.concurrency)
    ]
    started, began_s = utc_now(), time.monotonic()
    answers = await client.burst(asks)
    return Burst(answers, started, time.monotonic() - began_s)


async def run_cell(client: Client, prompts: Prompts, cell: Cell, name: str) -> Record:
    """One burst of a cell; `short` counts answers that ended before their forced length."""
    answers, started, wall_s = await burst(client, prompts, cell, name)
    good = [answer for answer in answers if answer.status == "ok"]
    return {
        **asdict(cell),
        "started": started,
        "wall_s": wall_s,
        "ok": len(good),
        "failed": len(answers) - len(good),
        "short": sum(answer.tokens != cell.output_tokens for answer in good),
        "status": sorted({answer.status for answer in answers}),
        **figures(answers),
        "requests": [_request_record(answer) for answer in answers],
    }


async def matrix(
    client: Client, cells: Sequence[Cell], passes: int, seed: str, write: Write
) -> list[Record]:
    """`passes` bursts of each cell, order drawn anew each pass, after one warm-up request."""
    prompts = await Prompts.calibrate(client, seed)
    draw = random.Random(seed)
    rows: dict[Cell, list[Record]] = {cell: [] for cell in cells}
    for turn in range(passes):
        for cell in draw.sample(list(cells), len(cells)):
            record = await run_cell(client, prompts, cell, f"{turn}/{cell.name}")
            write({"kind": "pass", "pass": turn, **record})
            rows[cell].append(record)
    return [summary(cell, rows[cell]) for cell in sorted(cells)]


def summary(cell: Cell, records: Sequence[Record]) -> Record:
    """Mean and standard deviation over the passes of a cell, failures counted."""
    out: Record = {"kind": "cell", **asdict(cell), "passes": len(records)}
    out |= {key: sum(record[key] for record in records) for key in ("failed", "short")}
    for key in FIGURES:
        known = [record[key] for record in records if record[key] is not None]
        out[key] = statistics.mean(known) if known else None
        out[key + "_sd"] = statistics.stdev(known) if len(known) > 1 else None
    return out


def prose_flaw(answer: Answer, wanted: int) -> str | None:
    """What is wrong with a prose answer, or None: cut, short, not text, or one phrase for ever."""
    if answer.status != "ok":
        return f"ended '{answer.status}' {answer.detail}"
    if answer.tokens != wanted:
        return f"{answer.tokens} tokens instead of {wanted}"
    if "\ufffd" in answer.text[:-1]:
        return "broken characters"
    pieces = [answer.text[k : k + 8] for k in range(len(answer.text) - 7)]
    if not pieces or len(set(pieces)) < PROSE_VARIETY_MIN * len(pieces):
        return "the same few words again and again"
    return None


async def prose(
    client: Client, seed: str, write: Write, sizes: tuple[int, int] = (PROSE_INPUT, PROSE_OUTPUT)
) -> list[Record]:
    """One fresh prompt, then five identical repeats, one request at a time.

    Cold means a prompt that the running server has not seen, not a cold server.
    """
    prompts = await Prompts.calibrate(client, seed)
    ask = Ask(prompts.make(sizes[0], "prose"), sizes[1])
    records = []
    for turn in range(1 + PROSE_REPEATS):
        started = utc_now()
        (answer,) = await client.burst([ask])
        record = {"kind": "prose", "condition": "warm" if turn else "cold", "started": started,
                  "flaw": prose_flaw(answer, ask.max_tokens),
                  **_request_record(answer, keep_text=True)}  # fmt: skip
        write(record)
        records.append(record)
    return records
