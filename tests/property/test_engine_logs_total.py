"""Log parsers are total: any text gives observations or nothing, whole or in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sentinel.collector import Context, DocumentParser, Line, LogParser, Sample
from sentinel.collectors import health_probe, packaged_log, sglang_log, torch_log, trtllm_log, vllm_log
from sentinel.model.observation import Observation
from tests.unit.log_reading import read

LOGS: tuple[LogParser, ...] = (
    sglang_log.PARSER, vllm_log.PARSER, trtllm_log.PARSER, torch_log.PARSER, packaged_log.PARSER,
)  # fmt: skip
PIECES = (
    "[2026-11-29 10:00:00 TP0] ", "[2026-13-99 99:99:99 TP1] ", "[20", "] ", "Decode batch, ", "#running-req: ", ", ",
    "9" * 40, "Prefill batch [3], ", "#token: -1", "token usage: nan", "gen throughput (token/s): inf", "\n", "é",
    "Scheduler hit an exception: ",
    "Traceback (most recent call last):", "\n  File", "\nKeyError: 1", "\x00", "\x1b[0m",
    "(EngineCore_DP0 pid=77) ", "INFO 11-29 10:00:10 [x.py:1] ", "INFO 99-99 99:99:99 [x.py:1] ", "\ud800",
    "Engine 000: Avg prompt throughput: 1.2.3 tokens/s, ", "Avg generation throughput: 1 tokens/s, ",
    "Running: 3 reqs, Waiting: 1 reqs, GPU KV cache usage: ....%", "Worker proc VllmWorker-x died unexpectedly",
    "Loading x:  42%|###| 1/0 [99:99<", "[rank3]:[E1129 10:10:04.3 a.cpp:6] ", "[E99 a.cpp:1] ", "[Rank 3] ",
    "[rank1]: ",
    "[11/29/2026-21:02:00] [TRT-LLM] [RANK 0] [I] ", "iter = 1,", '{"Iteration Counter":1e999}', "tp_size=8",
    "sentinel-engine version=1 args=(", "server_args=ServerArgs(",
    "Subprocess scheduler_1 (pid=1) crashed with exit code -9",
)  # fmt: skip
TRANSCRIPT = (
    "time,url,status,milliseconds\n", "2026-11-29T17:33:03Z,/health,200,7.6\n", "9999-99-99,a,b,c\n",
    '"\n', "a,b,c,d,e\n",
    "$ curl http://h:1/health\n", "200 0.1\n", "curl: (28) x after 99999999999999999999 milliseconds\n",
    "\x00", "\ud800",
    "99:99:99 $ curl h:1/x\n", '{"is_paused":true}\n', '{"ts": "x", "rid": "a", "status": 1e9}\n',
    '{"ts": "2026-11-29", "rid": "a"}\n', "Sun Nov 99 15:16:04 UTC 2026\n", "2026-11-29T12:43:33Z WARN x rid=a\n",
)  # fmt: skip
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=8), max_size=30).map("".join)


@pytest.mark.parametrize("parser", LOGS, ids=lambda parser: parser.name)
@given(text=HOSTILE)
def test_any_text_is_read_without_an_exception(parser: LogParser, text: str) -> None:
    """False would mean that one odd line costs all evidence of a file."""
    assert parser.recognise(Sample(text, text)) in (True, False)
    assert all(isinstance(seen, Observation) for seen in read(parser, text))


@pytest.mark.parametrize("parser", LOGS, ids=lambda parser: parser.name)
@given(text=HOSTILE, size=st.integers(1, 5))
def test_a_log_read_in_pieces_says_the_same(parser: LogParser, text: str, size: int) -> None:
    """False would mean that the live agent and the offline analysis see different things."""
    lines = [Line(number, line) for number, line in enumerate(text.split("\n"), start=1)]
    feed = parser.start(Context(name="engine.log", year=2026))
    pieces = [seen for at in range(0, len(lines), size) for seen in feed(lines[at : at + size])]
    assert [*pieces, *feed([])] == read(parser, text)


@pytest.mark.parametrize("parser", health_probe.PARSERS, ids=lambda parser: parser.name)
@given(text=st.lists(st.sampled_from(TRANSCRIPT) | st.text(max_size=6), max_size=20).map("".join))
def test_any_text_is_a_transcript_without_an_exception(parser: DocumentParser, text: str) -> None:
    """False would mean that a pasted session could break the analysis."""
    assert all(isinstance(seen, Observation) for seen in read(parser, text))
