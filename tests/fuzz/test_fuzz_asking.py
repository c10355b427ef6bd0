"""Damaged questions to the helper, damaged answers from it, and damaged orders to the API."""

import contextlib
import json
import os
import re
import socket
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given

from sentinel.agent.helper import Helper, Told
from sentinel.coordinator.api import Asked, asked_in
from sentinel.helper import server
from sentinel.helper.policy import Policy
from sentinel.model.engine import ProcessId
from tests.fuzz.fuzzing import bounded, damaged, examples

NESTED = b"[" * 60_000
VERBS = {verb: {"v": 1, "verb": verb, "pid": 4711, "started_ticks": 99} for verb in server.OF_PROCESSES}
REQUESTS = tuple(json.dumps(request).encode() + b"\n" for request in (*VERBS.values(), {"v": 1, "verb": "kernel_log"}))
ANSWERS = (
    b'{"v": 1, "ok": true, "bytes": 11, "why": ""}\nhello world',
    b'{"v": 1, "ok": false, "bytes": 0, "why": "the process is gone"}\n',
    b'{"v": 1, "ok": true, "bytes": 40, "why": ""}\n{"links": {"fd/1": "x"}, "settings": {}}',
)
ORDERS = (
    b'{"verb":"pause","reason":"test","seconds":60}',
    b'{"verb":"restart","reason":"test","group":"chat","dry_run":true}',
    b'{"verb":"policy","reason":"test","value":"auto"}',
)
NOBODY = Policy(frozenset({os.geteuid()}), (re.compile("/no-such-group"),))
NEVER = ProcessId(pid=server.PID_MAX, started_ticks=1)


@given(damaged(REQUESTS))
@examples(300)
def test_a_request_is_one_of_the_closed_list_or_refused_in_words(line: bytes) -> None:
    """False: the only code that runs with rights ends with a traceback, or does what nobody wrote a verb for."""
    with bounded():
        try:
            verb, target = server.parse(line)
        except ValueError as why:
            assert str(why)
            return
    assert (verb == "kernel_log") == (target is None)
    assert target is None or (verb in server.OF_PROCESSES and 1 < target.pid <= server.PID_MAX)


@given(damaged(REQUESTS))
@examples(80)
def test_every_request_is_answered_with_one_header_and_ends(line: bytes) -> None:
    """False: a broken client holds one of the four connections, or reads an answer that it cannot tell from another."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(line[:4096])
        ours.shutdown(socket.SHUT_WR)
        said = server.serve(theirs, NOBODY)
        theirs.close()
        data = b"".join(iter(lambda: ours.recv(1 << 16), b"")) if "verb=kernel_log ok" not in said else b'{"ok":true}\n'
    header = json.loads(data.partition(b"\n")[0])

    assert "\n" not in said and said.isprintable()
    assert header["ok"] is (" ok" in said) and (header["ok"] or header["why"])


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Helper, list[bytes]]]:
    """Something in the helper's place that answers whatever stands in the list."""
    path, answers = tmp_path_factory.mktemp("liar") / "helper.sock", [b""]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def lie() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    with client, contextlib.suppress(OSError):
                        client.recv(2000)
                        socket.send_fds(client, [answers[0][:1] or b"\n"], [0])
                        client.sendall(answers[0][1:])

        thread = threading.Thread(target=lie, daemon=True)
        thread.start()
        yield Helper(path), answers
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_any_answer_is_evidence_or_a_word_why_not(liar: tuple[Helper, list[bytes]]) -> None:
    """False: whoever takes the helper's place ends the agent's loop, or fills its table of descriptors."""
    helper, answers = liar
    open_before = len(os.listdir("/proc/self/fd"))

    @given(damaged((*ANSWERS, NESTED + b"\n", b'{"v":1,"ok":true,"bytes":60000,"why":""}\n' + NESTED)))
    @examples(120)
    def run(answer: bytes) -> None:
        answers[0] = answer
        told = helper.ask("threads", NEVER)
        assert isinstance(told, Told) and (told.why == "" or (told.data == b"" and told.fd == -1))
        log = helper.ask("kernel_log")
        assert (log.fd >= 0) is (log.why == "")
        if log.fd >= 0:
            os.close(log.fd)
        assert isinstance(Helper(helper.path).describe(NEVER).links, dict)

    run()
    assert len(os.listdir("/proc/self/fd")) <= open_before + 2


@given(damaged(ORDERS))
@examples(200)
def test_a_body_is_an_order_or_refused_in_words(body: bytes) -> None:
    """False: half an order is given, or a script gets a status that says the server is at fault."""
    asked = asked_in(body)

    assert asked if isinstance(asked, str) else isinstance(asked, Asked)


@pytest.mark.parametrize("body", [b"[" * 16_000, b'{"verb":' + b"[" * 16_000, b'{"x":{' * 2_000, b"", b"\xff\xfe"])
def test_a_body_that_is_nested_without_end_is_refused(body: bytes) -> None:
    """False: sixteen KiB of brackets are an internal error in the log of the coordinator."""
    assert isinstance(asked_in(body), str)
