"""The report in a real browser: it renders, complains about nothing and asks nobody for anything."""

import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sentinel.report import html
from tests.unit import report_cases as cases

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LIMIT_S = 90
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--window-size=1400,2400",
)  # fmt: skip

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on this machine; install the package chromium")


@contextmanager
def served(page: str) -> Iterator[tuple[str, list[str]]]:
    """The page on the loopback interface, and every path that was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/report.html", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def browse(url: str, profile: Path, *more: str) -> subprocess.CompletedProcess[str]:
    assert BROWSER is not None
    return subprocess.run(
        [BROWSER, *FLAGS, f"--user-data-dir={profile}", "--enable-logging=stderr", "--v=0", *more, url],
        capture_output=True, check=False, timeout=LIMIT_S, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def console(stderr: str) -> list[str]:
    """What a page of ours made the browser complain about."""
    return [line for line in stderr.splitlines() if re.search(r":CONSOLE[:(]|Refused to|Content Security Policy", line)]


@pytest.mark.parametrize("name", ["callback_stall", "divergence"])
def test_the_browser_shows_the_report_and_asks_for_nothing_else(name: str, tmp_path: Path) -> None:
    """False: the report needs the network, or opens with errors on the laptop of the person on call."""
    case: cases.Case = getattr(cases, name)()
    with served(html.render(case, name)) as (url, asked):
        shown = browse(url, tmp_path, "--dump-dom")

    assert shown.returncode == 0, shown.stderr[-2000:]
    assert case.verdict.summary.replace("'", "&#39;") in shown.stdout.replace("'", "&#39;")
    assert asked == ["/report.html"]
    assert console(shown.stderr) == []


def test_hostile_evidence_runs_nothing_in_the_browser(tmp_path: Path) -> None:
    """False: whoever opens the report of an attacked machine is attacked next."""
    payload = "</style><script>document.title='owned'</script><img src=/leak onerror=\"document.title='owned'\">"
    with served(html.render(cases.hostile(payload), payload)) as (url, asked):
        shown = browse(url, tmp_path, "--dump-dom")

    assert shown.returncode == 0, shown.stderr[-2000:]
    title = re.search(r"<title>(.*?)</title>", shown.stdout, re.DOTALL)
    assert title is not None and title[1].startswith("unknown: ")
    assert asked == ["/report.html"]
    assert console(shown.stderr) == []


def test_the_console_check_would_notice_a_complaint(tmp_path: Path) -> None:
    """False: the tests above are green because they look in the wrong place."""
    policy = "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'\">"
    with served(f"<html><head>{policy}<script src=/evil.js></script></head></html>") as (url, asked):
        shown = browse(url, tmp_path, "--dump-dom")

    assert console(shown.stderr) != []
    assert asked == ["/report.html"]
