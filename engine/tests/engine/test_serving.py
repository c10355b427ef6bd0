"""What clients get from two ranks: streams, modes, schemas, limits, health, metrics, logs."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from clusters import TOKEN, WAIT_S, Cluster, Start

DECODE = re.compile(
    r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d TP0\] Decode batch, #running-req: \d+, #token: \d+, "
    r"token usage: \d\.\d\d, accept len: \d+\.\d\d, accept rate: \d\.\d\d, cuda graph: False, "
    r"gen throughput \(token/s\): \d+\.\d\d, #queue-req: \d+$"
)
PREFILL = re.compile(
    r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d TP0\] Prefill batch, #new-seq: 1, #new-token: \d+, "
    r"#cached-token: 0, token usage: \d\.\d\d, #running-req: \d+, #queue-req: \d+, "
    r"cuda graph: False, input throughput \(token/s\): \d+\.\d\d$"
)
PROMPTS = ("Return a list of ", "The file is ", "def main(", "Raise an error if ")


@pytest.fixture(scope="module")
def pair(start: Start) -> Cluster:
    return start()


def stream(cluster: Cluster, prompt: str, tokens: int, **options: Any) -> tuple[str, int, str]:
    """Text, number of events and reason of a streamed greedy completion."""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True,
            "stream": True, **options}  # fmt: skip
    text, events, reason = "", 0, ""
    with httpx.stream("POST", cluster.url + "/v1/completions", json=body, timeout=WAIT_S) as lines:
        for line in lines.iter_lines():
            if line.startswith("data: {"):
                choice = json.loads(line[6:])["choices"][0]
                text, events = text + choice["text"], events + 1
                reason = choice["finish_reason"] or reason
    return text, events, reason


def test_concurrent_streams_are_served_with_drafts(pair: Cluster) -> None:
    """False: requests wait for each other, or text comes at the end, or nothing is drafted."""
    before = pair.metric("sentinel_engine_drafted_total")
    with ThreadPoolExecutor(6) as clients:
        jobs = [clients.submit(stream, pair, PROMPTS[k % 4], 20 + k) for k in range(6)]
        answers = [job.result() for job in jobs]
    for text, events, reason in answers:
        assert text and events > 1 and reason == "length"
    assert pair.metric("sentinel_engine_drafted_total") > before
    assert answers[0][0] == pair.text(PROMPTS[0], 20)


def test_greedy_text_is_the_same_from_nvme_and_ram(pair: Cluster) -> None:
    """False: a mode serves other rows than the other."""
    texts = {}
    for mode in ("ram", "nvme"):
        assert pair.control("/rowstore/mode", {"mode": mode})["modes"] == [mode, mode]
        texts[mode] = [pair.text(prompt, 40) for prompt in PROMPTS]
    assert texts["ram"] == texts["nvme"]


def test_toggling_under_load_changes_no_text(pair: Cluster) -> None:
    """False: a switch in mid-flight loses, repeats or corrupts rows."""
    expected = [pair.text(prompt, 48) for prompt in PROMPTS]
    done = threading.Event()

    def toggle() -> int:
        switches = 0
        while not done.is_set():
            for mode in ("ram", "nvme"):
                reply = pair.control("/rowstore/mode", {"mode": mode})
                switches += reply["modes"] == [mode, mode]
        return switches

    with ThreadPoolExecutor(5) as clients:
        toggling = clients.submit(toggle)
        for _ in range(3):
            jobs = [clients.submit(pair.text, prompt, 48) for prompt in PROMPTS]
            assert [job.result() for job in jobs] == expected
        done.set()
        assert toggling.result() >= 2


def test_a_schema_binds_the_output(pair: Cluster) -> None:
    """False: a client that asked for JSON has to repair it."""
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 8}, "size": {"type": "integer"},
            "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        },
    }  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": schema}}
    for seed in range(3):
        body = {"prompt": "A thing: ", "max_tokens": 120, "temperature": 1.0, "seed": seed}
        choice = pair.post("/v1/completions", body | {"response_format": form}).json()["choices"][0]
        value = json.loads(choice["text"])
        assert choice["finish_reason"] == "stop" and list(value) == ["name", "size", "tags"]
        assert isinstance(value["size"], int) and len(value["name"]) <= 8


def test_a_forced_tool_is_called_and_its_result_accepted(pair: Cluster) -> None:
    """False: a tool round trip breaks at the call or at the answer."""
    where = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}}
    function = {"name": "weather", "parameters": where}
    question = {"role": "user", "content": "Weather?"}
    body = {"messages": [question], "max_tokens": 60, "tool_choice": "required",
            "tools": [{"type": "function", "function": function}]}  # fmt: skip
    choice = pair.post("/v1/chat/completions", body).json()["choices"][0]
    call = choice["message"]["tool_calls"][0]
    assert choice["finish_reason"] == "tool_calls" and call["function"]["name"] == "weather"
    assert json.loads(call["function"]["arguments"])["city"] in ("Paris", "Rome")
    turns = [question, choice["message"], {"role": "tool", "content": "sunny"}]
    answer = pair.post("/v1/chat/completions", {"messages": turns, "max_tokens": 5}).json()
    assert answer["choices"][0]["message"]["role"] == "assistant"


def test_text_ends_before_a_stop_text(pair: Cluster) -> None:
    """False: clients see the text that they asked to end at."""
    whole = pair.text(PROMPTS[1], 40)
    stop = whole[10:12]
    answer = pair.complete(PROMPTS[1], 40, stop=stop)["choices"][0]
    assert answer["finish_reason"] == "stop"
    assert answer["text"] == whole[: whole.index(stop)]


def test_sampling_repeats_with_its_seed(pair: Cluster) -> None:
    """False: a reported oddity cannot be reproduced."""
    texts = [
        pair.complete("Once", 30, temperature=1.0, seed=5)["choices"][0]["text"] for _ in range(2)
    ]
    assert texts[0] == texts[1] != pair.text("Once", 30)


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"prompt": "a", "max_tokens": 5000}, 400, "context"),
        ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
        ({"prompt": "a", "temperature": 9}, 400, "temperature"),
        ({"prompt": "a", "top_p": 0.5}, 400, "top_p"),
        ({"prompt": []}, 400, "prompt"),
        ({"prompt": "a" * (1 << 20)}, 413, "bytes"),
        ({"prompt": "a", "response_format": {"type": "json_schema", "json_schema": {
            "schema": {"type": "string", "pattern": "a+"}}}}, 400, "pattern"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_served_is_told_why(
    pair: Cluster, body: Any, status: int, word: str
) -> None:
    """False: a client learns of its mistake from a wrong answer or a crash."""
    answer = pair.post("/v1/completions", body)
    assert answer.status_code == status and word in answer.json()["error"]["message"]


def test_controls_need_their_token(pair: Cluster) -> None:
    """False: any client may switch the store or inject faults."""
    for path in ("/rowstore/mode", "/faults"):
        assert pair.post(path, {}).status_code == 401
        assert pair.post(path, {}, authorization=f"Bearer {TOKEN}x").status_code == 401


def test_a_client_that_leaves_frees_its_place(pair: Cluster) -> None:
    """False: abandoned requests fill the engine."""
    body = {"prompt": "x", "max_tokens": 900, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", pair.url + "/v1/completions", json=body, timeout=WAIT_S) as lines:
        next(lines.iter_lines())
    forwards = pair.metric("sentinel_engine_forwards_total")
    pair.text("y", 4)
    assert pair.metric("sglang:num_running_reqs") == 0.0
    assert pair.metric("sentinel_engine_forwards_total") < forwards + 300


def test_health_models_and_metrics(pair: Cluster) -> None:
    """False: probes and scrapers do not see the engine."""
    assert httpx.get(pair.url + "/health", timeout=WAIT_S).status_code == 200
    assert httpx.get(pair.url + "/health_generate", timeout=WAIT_S).status_code == 200
    models = httpx.get(pair.url + "/v1/models", timeout=WAIT_S).json()
    assert models["data"][0]["id"] == "sentinel-tiny"
    tokens = pair.metric("sglang:realtime_tokens_total")
    pair.text("z", 8)
    assert pair.metric("sglang:realtime_tokens_total") >= tokens + 8
    assert "secret" not in httpx.get(pair.url + "/server_info", timeout=WAIT_S).text


def test_log_lines_are_in_the_dialect(pair: Cluster) -> None:
    """False: monitoring that reads SGLang's log sees no progress here."""
    pair.text("log", 60)
    assert DECODE.search(pair.head.wait_for("Decode batch"))
    assert PREFILL.search(pair.head.wait_for("Prefill batch"))
    pair.head.wait_for(r"\] sentinel-engine version=\S+ args=\(.*watchdog_timeout=300")


def test_all_collectives_are_numbered_alike(pair: Cluster) -> None:
    """False: the rings of a healthy engine would already look like a divergence."""
    rings = [pair.ring(rank) for rank in range(2)]
    shared = {one.number: one for one in rings[0].collectives}
    compared = 0
    for other in rings[1].collectives:
        mine = shared.get(other.number)
        if mine is not None and mine.end_ns and other.end_ns:
            assert (mine.op, mine.group, mine.bytes) == (other.op, other.group, other.bytes)
            compared += 1
    assert compared > 100


def test_sigterm_drains_and_ends_cleanly(start: Start) -> None:
    """False: a stop loses the answers of requests that run."""
    cluster = start(world=1, draft_tokens=0)
    with ThreadPoolExecutor(1) as client:
        running = client.submit(cluster.text, "bye", 60)
        cluster.head.wait_for("Prefill batch.*#new-token: 4,")
        assert cluster.head.end() == 0
        assert running.result()
