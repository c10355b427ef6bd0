"""Lines come out of every transport frame as the program wrote them."""

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from sentinel.collector import Line
from sentinel.evidence.framing import CUT_MARK, FORMATS, LINE_BYTES, detect, strip_escapes, thin, unframe

EPOCH_10_00 = 1795946400.0  # 2026-11-29T10:00:00Z


def lines_of(raw: bytes, size: int = 1 << 16) -> list[Line]:
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
    return [line for batch in unframe(pieces) for line in batch]


def texts_of(raw: bytes, size: int = 1 << 16) -> list[str]:
    return [line.text for line in lines_of(raw, size)]


def test_plain_lines_keep_their_numbers() -> None:
    """Else every file:line that a verdict cites would point to another line."""
    assert lines_of(b"a\n\nb\nc") == [Line(1, "a"), Line(2, ""), Line(3, "b"), Line(4, "c")]


def test_docker_records_above_16_kib_are_joined_per_stream() -> None:
    """Else the second half of a split decode line would be lost or glued to another stream's line."""
    records = [
        {"log": "first half ", "stream": "stderr", "time": "2026-11-29T10:00:00.5Z"},
        {"log": "other\n", "stream": "stdout", "time": "2026-11-29T10:00:01Z"},
        {"log": "second half\n", "stream": "stderr", "time": "2026-11-29T10:00:02Z"},
        {"log": "\u001b[0;36mcoloured\u001b[0m\r\n", "stream": "stdout", "attrs": {"a": "b"}, "time": "x"},
    ]
    raw = "".join(json.dumps(record) + "\n" for record in records).encode()
    assert detect(raw) == "docker"
    assert lines_of(raw) == [
        Line(2, "other", EPOCH_10_00 + 1),
        Line(1, "first half second half", EPOCH_10_00 + 0.5),
        Line(4, "coloured"),
    ]


def test_a_docker_record_cut_at_the_end_of_the_file_still_gives_its_text() -> None:
    """Else the last line before a hang, often the cut one, would be lost."""
    whole = json.dumps({"log": "Decode batch\n", "stream": "stdout", "time": "2026-11-29T10:00:00Z"})
    assert texts_of(f"{whole}\n{whole}\n".encode() + b'{"log":"Decode \\"ba\\u001') == [
        "Decode batch",
        "Decode batch",
        'Decode "ba',
    ]


def test_cri_partials_of_two_streams_do_not_mix() -> None:
    """Else stderr text would end up in the middle of a stdout line on every Kubernetes node."""
    raw = (
        b"2026-11-29T10:00:00.5Z stdout P out1 \n"
        b"2026-11-29T10:00:00.6Z stderr P err1 \n"
        b"2026-11-29T12:00:01+02:00 stdout F out2\n"
        b"2026-11-29T10:00:02Z stderr F err2\n"
    )
    assert lines_of(raw) == [Line(1, "out1 out2", EPOCH_10_00 + 0.5), Line(2, "err1 err2", EPOCH_10_00 + 0.6)]


def test_kubectl_timestamps_are_taken_off() -> None:
    """Else no engine's line prefix would match in `kubectl logs --timestamps` output."""
    raw = b"2026-11-29T10:00:00.123456789Z [2026-11-29 10:00:00 TP0] x\n2026-11-29T10:00:01.123456789Z \n"
    assert texts_of(raw) == ["[2026-11-29 10:00:00 TP0] x", ""]


def test_a_program_that_prints_utc_milliseconds_itself_keeps_them() -> None:
    """Else lines of programs with their own ISO times would lose the time that their parser needs."""
    raw = b"2026-11-29T10:00:00.123Z INFO started\n" * 3
    assert texts_of(raw) == ["2026-11-29T10:00:00.123Z INFO started"] * 3


def test_journal_messages_come_as_text_bytes_repeats_or_nothing() -> None:
    """Else coloured engine lines, which journald prints as arrays of integers, would be invisible."""
    base = {"__REALTIME_TIMESTAMP": "1795946400500000", "_HOSTNAME": "gpu-a", "_PID": "41", "_TRANSPORT": "stdout"}
    entries = [
        {**base, "MESSAGE": "plain"},
        {**base, "MESSAGE": list(b"\x1b[36mcoloured\x1b[0m")},
        {**base, "MESSAGE": ["one", [116, 119, 111]]},
        {**base, "MESSAGE": None},
        {**base, "MESSAGE": "first ", "_LINE_BREAK": "line-max"},
        {**base, "MESSAGE": "last"},
    ]
    raw = "".join(json.dumps(entry) + "\n" for entry in entries).encode()
    at = EPOCH_10_00 + 0.5
    assert lines_of(raw) == [
        Line(1, "plain", at, 41, "gpu-a"),
        Line(2, "coloured", at, 41, "gpu-a"),
        Line(3, "one", at, 41, "gpu-a"),
        Line(3, "two", at, 41, "gpu-a"),
        Line(5, "first last", at, 41, "gpu-a"),
    ]


def test_kernel_entries_of_the_journal_look_like_dmesg() -> None:
    """Else kernel messages would need a second parser, and would lose their time since boot."""
    entry = {
        "__REALTIME_TIMESTAMP": "1795946400000000",
        "_SOURCE_MONOTONIC_TIMESTAMP": "12000042",
        "_HOSTNAME": "gpu-a",
        "_TRANSPORT": "kernel",
        "MESSAGE": "NVRM: Xid (PCI:0000:1a:00): 79, GPU has fallen off the bus.",
    }
    (line,) = lines_of(json.dumps(entry).encode() + b"\n")
    assert line == Line(1, "[   12.000042] " + entry["MESSAGE"], EPOCH_10_00, None, "gpu-a")


def test_the_export_format_of_the_journal_is_read_with_binary_fields() -> None:
    """Else the only lossless form of a journal would be unreadable."""
    message = b"\x1b[36mtwo\nlines\x1b[0m"
    raw = (
        b"__CURSOR=s=1\n__REALTIME_TIMESTAMP=1795946400000000\n_HOSTNAME=gpu-a\n_PID=7\nMESSAGE\n"
        + len(message).to_bytes(8, "little")
        + message
        + b"\n\n__CURSOR=s=2\n__REALTIME_TIMESTAMP=1795946401000000\nMESSAGE=plain\n\n"
    )
    for size in (1, 7, 1 << 16):
        assert [(line.text, line.at_s) for line in lines_of(raw, size)] == [
            ("two", EPOCH_10_00),
            ("lines", EPOCH_10_00),
            ("plain", EPOCH_10_00 + 1),
        ]


def test_srun_labels_are_taken_off() -> None:
    """Else no line of a job started with `srun --label` would match."""
    raw = b"0: [2026-11-29 10:00:00 TP0] a\n1: [2026-11-29 10:00:00 TP1] b\n"
    assert texts_of(raw) == ["[2026-11-29 10:00:00 TP0] a", "[2026-11-29 10:00:00 TP1] b"]


def test_progress_bars_give_their_segments() -> None:
    """Else a moving capture or load bar would look like one line without movement."""
    bar = "\r".join(f"Capturing: {done}%|{'#' * (done // 10)}| {done}/100" for done in (0, 0, 0, 37, 37, 100))
    assert texts_of(f"{bar}\nnext\r\n".encode()) == [
        "Capturing: 0%|| 0/100",
        "Capturing: 37%|###| 37/100",
        "Capturing: 100%|##########| 100/100",
        "next",
    ]


def test_long_runs_of_segments_are_thinned() -> None:
    """Else a bar that was redrawn a million times would fill memory."""
    assert len(thin([f"spinner {n}" for n in range(100_000)])) <= 400
    assert thin(["5% a", "5% b", "5% c", "6% d", "6% e"]) == ["5% a", "6% d", "6% e"]


def test_a_bar_without_any_newline_is_read_while_it_grows() -> None:
    """Else a boot that ends inside a bar of several MiB would show nothing of it."""
    raw = b"".join(b"\rLoading: %3d%% " % (n * 100 // 200_000) + b"." * 20 for n in range(200_000))
    texts = texts_of(raw)
    assert texts[0].startswith("Loading:   0%") and texts[-1].startswith("Loading:  99%")
    assert len(texts) < 2_000


def test_a_line_of_many_mebibytes_is_cut_with_a_mark() -> None:
    """Else one line without an end would fill memory, or the line after it would be lost."""
    (long, after) = lines_of(b"x" * (5 << 20) + b"\nafter\n")
    assert long.text == "x" * LINE_BYTES + CUT_MARK and long.number == 1
    assert after == Line(2, "after")


def test_nul_gaps_and_invalid_bytes_do_not_hide_the_text_around_them() -> None:
    """Else the first line after a truncating log rotation would be lost."""
    assert texts_of(b"before\n" + b"\0" * 5000 + b"after \xff\xfe end\n") == ["before", "after \ufffd\ufffd end"]


def test_terminal_escapes_are_removed() -> None:
    """Else a hostile log could draw on the terminal of whoever reads the verdict."""
    assert strip_escapes("\x1b[31mred\x1b[0m \x1b]0;title\x07text\x1b]8;;http://x\x1b\\link\x1b(B.") == "red textlink."
    assert "\x1b" not in strip_escapes("\x1b]0;no end\x1b\x1b[")


def test_the_published_shapes_match_what_the_reader_reads() -> None:
    """Else the documented shape and the code would drift apart."""
    assert re.match(FORMATS["cri"], "2026-11-29T10:00:00Z stdout F text")
    assert re.match(FORMATS["docker.json"], '{"log":"x\\n","stream":"stdout","time":"2026-11-29T10:00:10Z"}')


_FRAMED = st.sampled_from(
    [b'{"log":"a', b'\\n","stream":"stdout","time":"2026-11-29T10:00:00Z"}\n', b"2026-11-29T10:00:00Z stdout P a\n",
     b'{"__CURSOR":"a","MESSAGE":[27,91]}\n', b"__CURSOR=1\nMESSAGE\n", b"\r", b"\n", b"\x1b[", b"\0", b"\xff", b"0: x"]
)  # fmt: skip


@given(st.lists(st.one_of(st.binary(max_size=40), _FRAMED), max_size=40).map(b"".join), st.integers(1, 50))
def test_any_bytes_give_lines_however_they_are_chunked(raw: bytes, size: int) -> None:
    """Else some file in an evidence folder could stop the whole analysis."""
    for line in lines_of(raw, size):
        assert not {"\n", "\r", "\x1b", "\0"} & set(line.text)


@given(st.lists(st.text(alphabet="ab %\r", max_size=12), max_size=20), st.integers(1, 30))
def test_chunk_borders_do_not_change_plain_text(lines: list[str], size: int) -> None:
    """Else what is read would depend on buffer sizes."""
    raw = "\n".join(lines).encode()
    assert lines_of(raw, size) == lines_of(raw)
