"""Load runs against a real HTTP server whose behaviour each test sets."""

import asyncio
import json
from pathlib import Path

import pytest
from tiny_server import Behaviour, serving

from sentinel_engine.cli import main
from sentinel_engine.load.bench import Cell, figures, prose_flaw, summary
from sentinel_engine.load.client import Answer, Ask, Client
from sentinel_engine.load.workload import Prompts, text


def burst(url: str, *asks: Ask, silence_s: float = 30) -> list[Answer]:
    async def run() -> list[Answer]:
        async with Client(url, silence_s=silence_s) as client:
            return await client.burst(asks)

    return asyncio.run(run())


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_output_length_is_forced() -> None:
    """False: runs of different lengths are compared, and rates mean nothing."""
    behaviour = Behaviour()
    with serving(behaviour) as url:
        (answer,) = burst(url, Ask("x" * 400, 32))
    assert (answer.status, answer.tokens, answer.prompt_tokens) == ("ok", 32, 100)
    assert behaviour.bodies[0]["ignore_eos"] is True and behaviour.bodies[0]["max_tokens"] == 32
    assert len(answer.text.split()) == 32


def test_tokens_of_the_first_event_are_not_decode() -> None:
    """False: speculation makes short answers look faster than they are."""
    with serving(Behaviour(tokens_per_event=5)) as url:
        (answer,) = burst(url, Ask("x" * 400, 32))
    assert (answer.first_tokens, answer.tokens) == (5, 32)
    assert answer.first_s is not None and answer.decode_tok_s is not None
    assert answer.decode_tok_s == pytest.approx(27 / (answer.last_s - answer.first_s))


def test_usage_at_the_end_alone_is_enough() -> None:
    """False: servers that send usage once cannot be measured."""
    with serving(Behaviour(usage_on_every_event=False)) as url:
        (answer,) = burst(url, Ask("x" * 400, 8))
    assert (answer.tokens, answer.first_tokens) == (8, 1)


def test_a_server_that_falls_silent_ends_the_burst() -> None:
    """False: a hang of the engine is a hang of the tool that looks for it."""
    with serving(Behaviour(hang_from_request=2)) as url:
        answers = burst(url, *[Ask("x" * 400, 8)] * 3, silence_s=1.0)
    assert sorted(answer.status for answer in answers) == ["ok", "silent", "silent"]
    assert all(answer.ttft_s is not None for answer in answers)


def test_a_refusal_and_an_error_event_are_told_apart() -> None:
    """False: an overloaded server and a failed batch look alike in the records."""
    with serving(Behaviour(refuse=True)) as url:
        (answer,) = burst(url, Ask("x", 8))
    assert answer.status == "http 503" and "queue is full" in answer.detail
    with serving(Behaviour(error_from_request=1)) as url:
        (answer,) = burst(url, Ask("x", 8))
    assert answer.status == "error" and "gather failed" in answer.detail


def test_a_server_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """False: a wrong port looks like a bad model."""
    assert main(["bench", "smoke", "--url", "http://127.0.0.1:9"]) == 1
    assert "http://127.0.0.1:9" in capsys.readouterr().err


def test_matrix_interleaves_its_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """False: a machine that warms up makes the cell that comes last look best."""
    out = tmp_path / "runs.jsonl"
    with serving(Behaviour()) as url:
        code = main(["--json", "bench", "matrix", "--url", url, "--input", "16,64", "--output", "8",
                     "--concurrency", "1,3", "--passes", "3", "--out", str(out)])  # fmt: skip
    assert code == 0
    records = lines(out)
    passes = [record for record in records if record["kind"] == "pass"]
    assert [record["pass"] for record in passes] == [0] * 4 + [1] * 4 + [2] * 4
    orders = {tuple((r["input_tokens"], r["concurrency"]) for r in passes[k : k + 4])
              for k in (0, 4, 8)}  # fmt: skip
    assert len(orders) > 1
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [record for record in records if record["kind"] == "cell"] == cells
    assert len(cells) == 4 and all(cell["ttft_s_sd"] > 0 for cell in cells)
    assert all(cell["failed"] == cell["short"] == 0 for cell in cells)


def test_no_prompt_is_sent_twice(tmp_path: Path) -> None:
    """False: the prefix cache answers, and prefill rates are of a cache."""
    behaviour = Behaviour()
    with serving(behaviour) as url:
        main(["bench", "matrix", "--url", url, "--input", "64", "--output", "2",
              "--concurrency", "4", "--passes", "2", "--out", str(tmp_path / "o")])  # fmt: skip
    prompts = [body["prompt"] for body in behaviour.bodies]
    assert len(set(prompts)) == len(prompts) == 1 + 8
    assert {len(prompt) for prompt in prompts[1:]} == {256}


def test_answers_that_stop_early_make_the_run_bad(tmp_path: Path) -> None:
    """False: an engine that does not ignore end-of-sequence gets a better rate for less work."""
    out = tmp_path / "o"
    with serving(Behaviour(stop_after=3)) as url:
        code = main(["bench", "ladder", "--url", url, "--input", "16", "--output", "8",
                     "--concurrency", "1,2", "--passes", "2", "--out", str(out)])  # fmt: skip
    assert code == 1
    assert sum(record["short"] for record in lines(out) if record["kind"] == "pass") == 6  # type: ignore[misc]


def test_one_pass_is_refused_and_no_file_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """False: point estimates are published as results, or an evening's run is overwritten."""
    out = tmp_path / "o"
    command = ["bench", "matrix", "--input", "16", "--output", "2", "--out", str(out)]
    assert main([*command, "--passes", "1"]) == 1
    assert "variance" in capsys.readouterr().err and not out.exists()
    out.write_text("kept")
    assert main([*command, "--passes", "2"]) == 1
    assert out.read_text() == "kept"


def test_prose_repeats_one_fresh_prompt(tmp_path: Path) -> None:
    """False: warm figures are of other prompts than the cold one."""
    behaviour, out = Behaviour(), tmp_path / "o"
    with serving(behaviour) as url:
        code = main(["bench", "prose", "--url", url, "--output", "400", "--out", str(out)])
    assert code == 1, "eight words in a circle are no prose"
    prompts = [body["prompt"] for body in behaviour.bodies[1:]]
    assert len(prompts) == 6 and len(set(prompts)) == 1 and len(prompts[0]) == 946 * 4
    records = lines(out)
    assert [record["condition"] for record in records] == ["cold"] + ["warm"] * 5
    assert "again and again" in str(records[0]["flaw"])
    assert str(records[0]["text"]).startswith("two three")


def test_prose_flaws() -> None:
    """False: garbage at full speed passes as a result."""
    good = text(400, "a text")
    assert prose_flaw(Answer("ok", good, tokens=100), 100) is None
    assert "99 tokens" in str(prose_flaw(Answer("ok", good, tokens=99), 100))
    assert prose_flaw(Answer("ok", "a\ufffdb" + good, tokens=100), 100) == "broken characters"
    assert "again" in str(prose_flaw(Answer("ok", "ha" * 200, tokens=100), 100))
    assert "silent" in str(prose_flaw(Answer("silent", good, tokens=100), 100))


def test_figures_of_a_burst() -> None:
    """False: totals count time in which nothing could be decoded, or requests that failed."""
    one = Answer("ok", "", "", 100, 11, 1, sent_s=0.0, first_s=1.0, last_s=2.0)
    two = Answer("ok", "", "", 300, 21, 1, sent_s=0.0, first_s=2.0, last_s=6.0)
    lost = Answer("silent", "", "", 100, 5, 1, sent_s=0.0, first_s=1.0, last_s=9.0)
    found = figures([one, two, lost])
    assert found == {"ttft_s": 1.5, "decode_tok_s": 7.5, "total_decode_tok_s": 6.0,
                     "prefill_tok_s": 200.0}  # fmt: skip
    assert set(figures([lost]).values()) == {None}


def test_summary_counts_what_failed() -> None:
    """False: a cell in which requests failed looks like any other."""
    records = [{"ttft_s": v, "decode_tok_s": None, "total_decode_tok_s": 2.0, "prefill_tok_s": 1.0,
                "failed": 1, "short": 0} for v in (1.0, 3.0)]  # fmt: skip
    row = summary(Cell(1, 2, 3), records)
    assert (row["ttft_s"], row["failed"], row["decode_tok_s"]) == (2.0, 2, None)
    assert row["ttft_s_sd"] == pytest.approx(2**0.5)


def test_prompts_have_the_asked_length_and_repeat() -> None:
    """False: two runs of the same seed load the engine differently."""
    prompts = Prompts(4.0, "s")
    assert len(prompts.make(100, "a")) == 400
    assert prompts.make(100, "a") == prompts.make(100, "a") != prompts.make(100, "b")


def test_a_server_without_usage_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """False: rates are computed from token counts that nobody gave."""
    with serving(Behaviour(usage=False)) as url:
        assert main(["bench", "prose", "--url", url, "--out", str(tmp_path / "o")]) == 1
    assert "usage" in capsys.readouterr().err


CALL: dict[str, object] = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "read_meter", "arguments": '{"meter":7}'}}
]}  # fmt: skip


def say(content: str) -> dict[str, object]:
    return {"role": "assistant", "content": content}


def test_smoke_tests_pass_on_a_model_that_can(capsys: pytest.CaptureFixture[str]) -> None:
    """False: a good model is turned away, or the tool's result is not sent back to it."""
    answers = [say("408"), say('{"city": "Oslo", "population": 1}'), CALL, say("31,415 kWh")]
    behaviour = Behaviour(chat=answers)
    with serving(behaviour) as url:
        assert main(["--json", "bench", "smoke", "--url", url]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(found[name]["ok"] for name in ("arithmetic", "json-schema", "tool"))
    assert behaviour.bodies[1]["response_format"]["json_schema"]["schema"]["required"]
    roles = [message["role"] for message in behaviour.bodies[-1]["messages"]]
    assert roles == ["user", "assistant", "tool"]


@pytest.mark.parametrize(("name", "answers"), [
    ("arithmetic", [say("409")]),
    ("json-schema", [say('{"city": "Oslo", "population": "many"}')]),
    ("json-schema", [say("Oslo")]),
    ("json-schema", [say('{"city": "Oslo", "population": 1, "more": 2}')]),
    ("tool", [say("I cannot")]),
    ("tool", [CALL, say("nothing")]),
])  # fmt: skip
def test_smoke_tests_can_fail(name: str, answers: list[dict[str, object]]) -> None:
    """False: a model that cannot do it passes."""
    with serving(Behaviour(chat=answers)) as url:
        assert main(["bench", "smoke", "--url", url, "--only", name]) == 1


def test_a_run_that_never_began_leaves_no_file(tmp_path: Path) -> None:
    """False: the second try is refused because of the first one's empty file."""
    out = tmp_path / "o"
    command = ["bench", "prose", "--out", str(out), "--output", "8"]
    with serving(Behaviour(refuse=True)) as url:
        assert main([*command, "--url", url]) == 1
    assert not out.exists()
    with serving(Behaviour()) as url:
        main([*command, "--url", url])
    assert len(lines(out)) == 6
