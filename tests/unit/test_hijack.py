"""The conversation over a hijacked connection: frames, limits, and bytes read ahead."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from envlock.errors import TargetError
from envlock.targets.hijack import Output, converse, unwrap
from envlock.targets.process import Limits, ProgramFloodError, ProgramTimeoutError

Pair = tuple[socket.socket, socket.socket]


def frame(stream: int, data: bytes) -> bytes:
    return bytes([stream, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


def output(**limits: float) -> Output:
    return Output(name="program", limits=Limits(**{"timeout_s": 5.0, **limits}))  # type: ignore[arg-type]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 4096])
def test_streams_are_kept_apart_however_the_bytes_are_cut(size: int) -> None:
    data = frame(1, b"out") + frame(2, b"err") + frame(1, b"") + frame(1, b"put") + frame(2, b"!")
    collected = output()
    for start in range(0, len(data), size):
        collected.feed(data[start : start + size])
    assert (bytes(collected.stdout), bytes(collected.stderr)) == (b"output", b"err!")


@pytest.mark.parametrize(
    "header", [b"\x03\0\0\0\0\0\0\x01", b"\x01\0\x01\0\0\0\0\x01", b"HTTP/1.1"]
)
def test_what_is_no_frame_is_an_error(header: bytes) -> None:
    with pytest.raises(TargetError, match="garbled"):
        output().feed(header)


def test_a_flood_is_cut_and_a_long_answer_is_not() -> None:
    collected = output(stdout_bytes=1000)
    collected.feed(frame(1, b"x" * 1000))
    with pytest.raises(ProgramFloodError):
        collected.feed(frame(1, b"x"))


def test_of_standard_error_the_end_is_kept() -> None:
    seen: list[bytes] = []
    collected = Output(name="p", limits=Limits(timeout_s=5, stderr_bytes=10), on_stderr=seen.append)
    collected.feed(frame(2, b"0123456789") + frame(2, b"abc"))
    assert bytes(collected.stderr) == b"3456789abc"
    assert b"".join(seen) == b"0123456789abc"


def test_input_is_sent_whole_and_then_ended(pair: Pair) -> None:
    ours, theirs = pair
    data = bytes(range(256)) * 8000  # more than any socket buffer
    received = bytearray()

    def serve() -> None:
        while chunk := theirs.recv(65536):
            received.extend(chunk)
        theirs.sendall(frame(1, b"done"))
        theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    collected = output()
    converse(ours, collected, stdin=data, ended=lambda: False)
    thread.join()
    assert bytes(received) == data
    assert bytes(collected.stdout) == b"done"


def test_no_input_is_ended_at_once(pair: Pair) -> None:
    ours, theirs = pair

    def serve() -> None:
        assert theirs.recv(1) == b""
        theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    converse(ours, output(), stdin=b"", ended=lambda: False)
    thread.join()


def test_a_silent_program_times_out(pair: Pair) -> None:
    started = time.monotonic()
    with pytest.raises(ProgramTimeoutError, match=r"program did not finish within 0\.3 s"):
        converse(pair[0], output(timeout_s=0.3), stdin=b"", ended=lambda: False)
    assert time.monotonic() - started < 2


def test_a_chatty_program_times_out_too(pair: Pair) -> None:
    ours, theirs = pair
    stop = threading.Event()

    def chat() -> None:
        while not stop.wait(0.01):
            theirs.sendall(frame(2, b"still here\n"))

    thread = threading.Thread(target=chat)
    thread.start()
    try:
        with pytest.raises(ProgramTimeoutError):
            converse(ours, output(timeout_s=0.5), stdin=b"", ended=lambda: False)
    finally:
        stop.set()
        thread.join()


def test_an_open_connection_of_an_ended_program_is_left(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(frame(1, b"answer"))
    collected, started = output(timeout_s=30), time.monotonic()
    converse(ours, collected, stdin=b"", ended=lambda: True)
    assert bytes(collected.stdout) == b"answer"
    assert time.monotonic() - started < 3


def test_bytes_that_were_read_ahead_are_not_lost(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(b"HTTP/1.1 101 UPGRADED\r\n\r\n" + frame(1, b"early"))
    reader = ours.makefile("rb")
    assert reader.readline() + reader.readline() == b"HTTP/1.1 101 UPGRADED\r\n\r\n"
    connection, early = unwrap(reader)
    theirs.sendall(frame(1, b" late"))
    theirs.close()
    collected = output()
    collected.feed(early)
    converse(connection, collected, stdin=b"", ended=lambda: False)
    reader.close()
    assert bytes(collected.stdout) == b"early late"


def test_nothing_read_ahead_is_no_wait(pair: Pair) -> None:
    with pair[0].makefile("rb") as reader:
        assert unwrap(reader)[1] == b""


def test_a_connection_without_a_socket_is_refused() -> None:
    with pytest.raises(TargetError, match="unix:// and plain tcp://"):
        unwrap(io.BufferedReader(io.BytesIO()))
