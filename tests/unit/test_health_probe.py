"""Probes from outside: an answer, an error and a silence are three different things."""

from sentinel.collectors import health_probe
from sentinel.model.observation import HealthProbe, Notice
from tests.unit.log_reading import at, read, recognised

CSV, CURL, GATEWAY = health_probe.PARSERS


def test_a_table_of_probes_keeps_errors_apart_from_answers() -> None:
    """Otherwise a refused connection would pass for a front end that hangs."""
    text = (
        "time,url,status,milliseconds\n2026-11-29T17:33:03Z,/health,200,7.6\n"
        "2026-11-29T17:33:13Z,/health,URLError(ConnectionRefusedError(111, 'Connection refused')),0.8\nnoise\n"
        "2026-11-29T17:33:23Z,/health,TimeoutError('timed out'),5017.7\n"
    )
    probes = [seen for seen in read(CSV, text) if isinstance(seen, HealthProbe)]
    assert recognised(CSV, text)
    assert [(probe.status, probe.latency_ms) for probe in probes] == [(200, 7.6), (None, 0.8), (None, 5017.7)]
    assert "refused" in probes[1].error
    assert probes[0].at_s == at("17:33:03")


def test_a_curl_transcript_gives_answers_time_outs_and_what_the_engine_says_of_itself() -> None:
    """Otherwise a pasted shell session, the commonest evidence of all, would be lost."""
    text = (
        '$ curl -m 5 -s -o /dev/null -w "%{http_code} %{time_total}\\n" localhost:30000/health\n200 0.001\n'
        '$ curl -m 10 -s localhost:30000/get_server_info | head -c 200; echo "rc=$?"\n'
        "curl: (28) Operation timed out after 10001 milliseconds with 0 bytes received\n"
        "14:36:19 $ curl -m 10 http://10.0.0.3:8000/v1/models\ncurl: (7) Failed to connect to 10.0.0.3 port 8000\n"
        "$ date; curl -s -m 3 localhost:8000/is_paused; echo\nSun Nov 29 15:16:04 UTC 2026\n"
        '{"is_paused":true}\n'
    )
    seen = read(CURL, text)
    probes = [one for one in seen if isinstance(one, HealthProbe)]
    assert [(probe.url, probe.status, probe.latency_ms) for probe in probes] == [
        ("localhost:30000/health", 200, 1.0), ("localhost:30000/get_server_info", None, 10001.0),
        ("http://10.0.0.3:8000/v1/models", None, None),
    ]  # fmt: skip
    assert probes[2].clock_s == 14 * 3600 + 36 * 60 + 19
    assert [(one.notice, one.at_s) for one in seen if isinstance(one, Notice)] == [("pause", at("15:16:04"))]


def test_a_gateway_log_names_requests_with_and_without_an_answer() -> None:
    """Otherwise the request that blocks the others could not be named."""
    text = (
        '{"ts": "2026-11-29T09:04:35Z", "rid": "a", "path": "/v1/x", "prompt_tokens": 7, "status": 200, "ms": 12}\n'
        '{"ts": "2026-11-29T09:05:35Z", "rid": "b", "response_format": "json_schema", "prompt_tokens": 9, '
        '"status": null}\n'
    )
    timed_out = "2026-11-29T12:43:33Z WARN request timed out after 300s rid=r1 prefill=10.0.0.3:1 decode=10.0.0.4:1\n"
    seen = [one for one in (*read(GATEWAY, text), *read(GATEWAY, timed_out)) if isinstance(one, Notice)]
    assert recognised(GATEWAY, text) and recognised(GATEWAY, timed_out)
    assert [(one.notice, one.fields["rid"]) for one in seen] == [
        ("request_done", "a"), ("request", "b"), ("request_abort", "r1"),
    ]  # fmt: skip
    assert seen[2].fields["after_s"] == "300"
