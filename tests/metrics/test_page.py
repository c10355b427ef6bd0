"""The page as a scraper sees it: of a real agent beside a real engine, and of one whose loop stands still."""

import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sentinel.agent.loop import AgentLoop
from sentinel.agent.serve import served
from sentinel.config import Config, ConfigError, Folders, Metrics, load
from sentinel.core.facts import NAMES
from sentinel.metrics.exporter import CONNECTIONS_MAX, Exporter, Health, Pages
from sentinel.metrics.exposition import encode
from sentinel.metrics.registry import AGENT, ENGINES
from sentinel.metrics.tally import Tally
from sentinel.rulebook import load_rules
from sentinel.testing.ports import free_port
from sentinel.testing.virtual import VirtualClock
from tests.agent.engines import rehearsal
from tests.agent.targets import eventually, stop
from tests.agent.watchers import watcher, watching
from tests.metrics.scrapes import get, scraped, value

RULES = load_rules(NAMES)
PAGE = tuple(Tally(AGENT).series())


def pages() -> Pages:
    return Pages(snapshot=lambda: PAGE, healthy=lambda: Health(True, "well"), ready=lambda: Health(False, "not yet"))


@pytest.fixture
def page() -> Iterator[int]:
    exporter = Exporter(pages(), "127.0.0.1", 0)
    yield exporter.open()
    exporter.close()


@pytest.mark.timeout(300)
def test_a_scrape_tells_of_an_engine_before_and_in_a_stall(tmp_path: Path) -> None:
    """If false, the first alert in production would be the one that says the page cannot be read."""
    port, served_at = free_port(), str(free_port())
    textfile = tmp_path / "sentinel.prom"
    settings = {"SENTINEL_METRICS_LISTEN": f"127.0.0.1:{port}", "SENTINEL_METRICS_TEXTFILE": str(textfile)}
    with (
        rehearsal(tmp_path / "engine", 2, "--port", served_at) as engine,
        watcher(tmp_path / "state", **settings) as agent,
    ):
        watching(agent, engine.launcher.pid)
        name = f"packaged:{served_at}"
        eventually(lambda: value(scraped(port), "sentinel_engine_state", engine=name, state="working") == 1)
        before = scraped(port)
        stop(engine.engine().ranks[1].id.pid)
        eventually(lambda: value(scraped(port), "sentinel_stall_active", engine=name, cause="hang.stopped") == 1)
        eventually(lambda: (value(scraped(port), "sentinel_bundles_total") or 0) >= 1)
        eventually(lambda: (value(scraped(port), "sentinel_bundle_store_bytes") or 0) > 0)
        hung = scraped(port)
        ready, healthy = get(port, "/readyz"), get(port, "/healthz")
        plain = get(port)

    known = {sample for metric in AGENT for sample in metric.samples}
    assert {sample.name for sample in hung} <= known
    without = {metric.name for metric in ENGINES} - {sample.name for sample in hung}
    assert without <= {"sentinel_store_mode", "sentinel_store_oldest_read_seconds"}, "only the row store is absent here"
    assert value(before, "sentinel_stall_active", engine=name) == 0
    assert value(before, "sentinel_engine_ranks", engine=name) == 2
    assert (value(hung, "sentinel_stalls_total", cause="hang.stopped") or 0) >= 1
    assert value(hung, "sentinel_engine_processes", engine=name, proc_state="T") == 1
    assert value(hung, "sentinel_dumps_total", kind="py-spy") != 0
    assert (value(hung, "sentinel_bundle_store_bytes") or 0) > 0
    assert (value(hung, "sentinel_detection_delay_seconds_count") or 0) >= 1
    assert (value(hung, "process_cpu_seconds_total") or 0) > 0
    assert len(hung) < 900 and ready.status == 200 and healthy.status == 200
    assert plain.content_type.startswith("text/plain") and list(text_string_to_metric_families(plain.text))
    assert "sentinel_stall_active" in textfile.read_text()


def test_a_scrape_opens_no_file(page: int) -> None:
    """If false, a scrape would wait for a driver, a disk or /proc, and hang with the engine."""
    opened: list[object] = []
    watched = threading.Event()

    def audit(event: str, args: tuple[object, ...]) -> None:
        if watched.is_set() and event in ("open", "os.listdir", "os.scandir", "subprocess.Popen"):
            opened.append(args[0])

    get(page)
    sys.addaudithook(audit)
    watched.set()
    try:
        answer = get(page)
    finally:
        watched.clear()

    assert answer.status == 200 and opened == []


def test_health_is_about_the_loop_and_readiness_about_the_agent(tmp_path: Path) -> None:
    """If false, an agent whose loop hangs would count as alive, or be restarted because an engine hangs."""
    clock = VirtualClock()
    config = Config(folders=Folders(state=str(tmp_path)), metrics=Metrics(listen="127.0.0.1:0"))
    loop = AgentLoop(config, RULES, clock)
    with served(loop) as port:
        assert port is not None
        assert [get(port, path).status for path in ("/metrics", "/healthz", "/readyz")] == [503, 200, 503]
        loop.turn()
        assert [get(port, path).status for path in ("/metrics", "/healthz", "/readyz")] == [200, 200, 200]
        clock.run_until(60.0)
        assert [get(port, path).status for path in ("/metrics", "/healthz", "/readyz")] == [200, 503, 200]
        loop.journal_trouble = "journal: No space left on device"
        assert get(port, "/readyz").text == "journal: No space left on device\n"
        assert get(port, "/etc/passwd").status == 404
    loop.close()


def test_a_page_that_cannot_be_served_is_said_and_the_watch_goes_on(tmp_path: Path) -> None:
    """If false, a port in use would keep the agent from watching, or it would be unseen without a word."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        config = Config(folders=Folders(state=str(tmp_path)), metrics=Metrics(listen=f"127.0.0.1:{port}"))
        loop = AgentLoop(config, RULES, VirtualClock())
        with served(loop) as opened:
            loop.turn()
    loop.close()

    assert opened is None and loop.latest is not None
    assert any("Address already in use" in trouble for trouble in loop.latest.troubles)


def test_clients_that_hold_connections_cannot_use_up_the_agent(page: int) -> None:
    """If false, a broken scraper would make threads without end on a host that serves a model."""
    held = [socket.create_connection(("127.0.0.1", page), timeout=10) for _ in range(CONNECTIONS_MAX)]
    one_more = socket.create_connection(("127.0.0.1", page), timeout=10)
    try:
        assert one_more.recv(1) == b""
    finally:
        for client in (*held, one_more):
            client.close()
    eventually(lambda: answers(page))


def answers(port: int) -> bool:
    try:
        return get(port).status == 200
    except OSError:
        return False


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_off_loopback_a_page_speaks_tls_and_wants_its_token(tmp_path: Path) -> None:
    """If false, whoever reaches the port learns what runs on the host."""
    key, certificate, token = tmp_path / "key.pem", tmp_path / "cert.pem", tmp_path / "token"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", key, "-out", certificate, "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"],
        check=True, capture_output=True,
    )  # fmt: skip
    token.write_text("s3cret\n")
    state = str(tmp_path / "state")
    metrics = Metrics(listen="127.0.0.1:0", certificate_file=str(certificate), key_file=str(key), token_file=str(token))
    loop = AgentLoop(Config(folders=Folders(state=state), metrics=metrics), RULES, VirtualClock())
    trusting = ssl.create_default_context(cafile=str(certificate))
    with served(loop) as port:
        assert port is not None
        loop.turn()
        answers = [
            get(port, tls=trusting, **headers).status
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer s3cret"})
        ]
        with pytest.raises(OSError):
            get(port)
        health = get(port, "/healthz", tls=trusting).status
    loop.close()

    assert answers == [401, 401, 200] and health == 200


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("metrics: {listen: 0.0.0.0:9469}", "is not loopback"),
        ("metrics: {listen: '9469'}", "is not HOST:PORT"),
        ("metrics: {listen: '127.0.0.1:99999'}", "is not HOST:PORT"),
        ("metrics: {certificate_file: a}", "belong together"),
        ("metrics: {listen: 0.0.0.0:9469, certificate_file: a, key_file: b}", "is not loopback"),
    ],
)
def test_a_page_that_would_be_open_to_all_is_refused(tmp_path: Path, text: str, complaint: str) -> None:
    """If false, one line of configuration would publish the page to the network without a word."""
    (tmp_path / "sentinel.yaml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load(tmp_path / "sentinel.yaml", {})


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian package prometheus)")
def test_prometheus_own_tool_finds_nothing_to_say() -> None:
    """If false, the names break conventions that other people's queries rely on."""
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=encode(PAGE)[0], capture_output=True, check=False,
        env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip

    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")
