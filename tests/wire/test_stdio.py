from collections.abc import Iterator
from contextlib import suppress
import json
import os
from pathlib import Path
import select
import signal
import socket
import subprocess
import sys
import threading
from typing import IO, Any

import pytest

from dsh_acp.wire.stdio import Input, Output

SERVER = Path(__file__).with_name("echo_server.py")
PROJECT = Path(__file__).resolve().parents[2]


class Process:
    def __init__(self, *args: str, **options: Any) -> None:
        env = {**os.environ, "PYTHONPATH": str(PROJECT), **options.pop("env", {})}
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": env, **options}
        self.it = subprocess.Popen(
            [sys.executable, str(SERVER), *args], stderr=subprocess.PIPE, **options
        )

    def send(self, *lines: bytes) -> None:
        assert self.it.stdin
        self.it.stdin.write(b"".join(line + b"\n" for line in lines))
        self.it.stdin.flush()

    def call(self, id: Any, method: str, params: Any = None) -> None:
        frame = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        self.send(json.dumps(frame, ensure_ascii=False).encode())

    def receive(self) -> dict[str, Any]:
        assert self.it.stdout
        line = self.it.stdout.readline()
        assert line.endswith(b"\n") and not line.endswith(b"\r\n")
        return json.loads(line)

    def end(self) -> tuple[bytes, bytes]:
        return self.it.communicate(timeout=20)

    def stop(self) -> None:
        self.it.kill()
        self.it.wait(10)
        for stream in (self.it.stdin, self.it.stdout, self.it.stderr):
            if stream:
                with suppress(OSError):
                    stream.close()


@pytest.fixture
def server() -> Iterator[Process]:
    process = Process()
    yield process
    process.stop()


def test_calls_come_back_and_end_of_input_ends_the_process(server: Process) -> None:
    server.call(0, "echo", {"a": "Messgerät 你好 ✓ \u2028"})
    assert server.receive() == {
        "jsonrpc": "2.0",
        "id": 0,
        "result": {"a": "Messgerät 你好 ✓ \u2028"},
    }
    rest, _ = server.end()
    assert rest == b"" and server.it.returncode == 0


def test_nothing_but_frames_reaches_stdout(server: Process) -> None:
    server.call(1, "noise")
    assert server.receive()["id"] == 1
    rest, errors = server.end()
    assert rest == b""
    assert b"a stray print" in errors and b"descriptor one" in errors and b"child" in errors


def test_the_locale_does_not_matter() -> None:
    process = Process(env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"})
    process.call(1, "echo", "Messgerät 你好 ✓")
    process.call(2, "noise")
    assert process.receive()["result"] == "Messgerät 你好 ✓"
    assert process.receive() == {"jsonrpc": "2.0", "id": 2, "result": {}}
    process.end()


def test_blank_lines_and_crlf_are_no_errors(server: Process) -> None:
    server.send(b'{"id":1,"method":"echo"}\r', b"", b"", b"\r", b'{"id":2,"method":"echo"}')
    assert [server.receive()["id"], server.receive()["id"]] == [1, 2]


def test_bytes_may_arrive_one_at_a_time(server: Process) -> None:
    assert server.it.stdin
    for byte in b'{"id":1,"method":"echo","params":"\xe2\x9c\x93"}\n':
        os.write(server.it.stdin.fileno(), bytes([byte]))
    assert server.receive()["result"] == "✓"


@pytest.mark.parametrize("size", [65_500, 65_537, 1_000_000, 12_000_000])
def test_long_lines_are_read_and_written(server: Process, size: int) -> None:
    server.call(1, "size", {"text": "x" * size})
    assert server.receive()["result"] == {"size": size + len('{"text": ""}')}
    server.call(2, "big", {"size": size})
    assert len(server.receive()["result"]["text"]) == size


def test_a_line_beyond_the_cap_is_refused_by_its_id_and_the_next_one_works(server: Process) -> None:
    assert server.it.stdin
    server.it.stdin.write(b'{"id":5,"method":"size","params":"')
    for _ in range(65):
        server.it.stdin.write(b"x" * (1 << 20))
    server.send(b'"}')
    server.call(6, "echo")
    first, second = server.receive(), server.receive()
    assert first["id"] == 5 and first["error"]["code"] == -32600
    assert second["id"] == 6


def test_a_slow_reader_gets_everything_in_order(server: Process) -> None:
    count, size = 40, 100_000
    for id in range(count):
        server.call(id, "big", {"size": size})
    assert server.it.stdin
    server.it.stdin.close()
    server.it.stdin = None
    frames = [server.receive() for _ in range(count)]
    assert [frame["id"] for frame in frames] == list(range(count))
    assert all(len(frame["result"]["text"]) == size for frame in frames)


def test_both_directions_at_once(server: Process) -> None:
    server.call(0, "ask")
    asked = server.receive()
    assert (asked["id"], asked["method"]) == (0, "client/ask")
    server.send(b'{"jsonrpc":"2.0","id":0,"result":{"yes":true}}')
    assert server.receive() == {"jsonrpc": "2.0", "id": 0, "result": {"answer": {"yes": True}}}


def test_a_signal_ends_the_process_although_stdin_is_open(server: Process) -> None:
    server.call(1, "echo")
    server.receive()
    server.it.send_signal(signal.SIGTERM)
    assert server.it.wait(10) == -signal.SIGTERM


def test_a_vanished_reader_is_no_traceback(server: Process) -> None:
    assert server.it.stdout
    server.call(1, "echo")
    server.receive()
    server.it.stdout.close()
    for id in range(5):
        server.call(id, "big", {"size": 200_000})
    assert server.it.stdin and server.it.stderr
    server.it.stdin.close()
    assert server.it.wait(10) == 0
    assert server.it.stderr.read() == b""


def test_stdin_and_stdout_may_be_regular_files(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(
        b'{"id":1,"method":"noise"}\n{"id":2,"method":"big","params":{"size":300000}}'
    )
    with (tmp_path / "in").open("rb") as source, (tmp_path / "out").open("wb") as sink:
        process = Process("drain", stdin=source, stdout=sink)
        _, errors = process.end()
    assert process.it.returncode == 0 and b"a stray print" in errors
    lines = [json.loads(line) for line in (tmp_path / "out").read_bytes().splitlines()]
    results = {line["id"]: line["result"] for line in lines}
    assert results[1] == {} and len(results[2]["text"]) == 300_000


def test_stdin_and_stdout_may_be_one_socket() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = Process(stdin=theirs, stdout=theirs)
        ours.sendall(b'{"id":1,"method":"big","params":{"size":3000000}}\n')
        stream: IO[bytes] = ours.makefile("rb")
        assert len(json.loads(stream.readline())["result"]["text"]) == 3_000_000
        ours.shutdown(socket.SHUT_WR)
        process.end()
        assert process.it.returncode == 0


# ---------------------------------------------------------------- Input alone


def test_the_moment_of_the_handover_is_never_taken_for_the_end() -> None:
    ends: list[int] = []
    for attempt in range(100):
        source, sink = os.pipe()
        lines, taken = Input(source), threading.Event()
        lines.listen(lambda attempt=attempt: ends.append(attempt))
        lines.start(lambda _: None, lambda: None, taken.set)
        assert taken.wait(10)
        for fd in (source, sink):
            os.close(fd)
    assert ends == []


# ---------------------------------------------------------------- Output alone


def test_a_full_pipe_never_blocks_the_writer_and_order_is_kept() -> None:
    source, sink = os.pipe()
    output = Output(sink)
    sent = [b"%d:" % n + b"x" * n * 37 + b"\n" for n in range(600)]
    for line in sent:
        output.write(line)
    received = bytearray()
    while len(received) < sum(map(len, sent)):
        received += os.read(source, 1 << 16)
    assert bytes(received) == b"".join(sent)
    output.close()
    for fd in (source, sink):
        os.close(fd)


def test_writes_go_out_at_once_when_there_is_room() -> None:
    source, sink = os.pipe()
    output = Output(sink)
    output.write(b"x" * 60_000)
    assert select.select([source], [], [], 0)[0]
    assert len(os.read(source, 1 << 20)) == 60_000
    output.close()


def test_congestion_is_reported_and_relieved() -> None:
    source, sink = os.pipe()
    relieved = threading.Event()
    output = Output(sink, relieved=relieved.set)
    output.write(b"x" * 3_000_000)
    assert output.congested
    left = 3_000_000
    while left:
        left -= len(os.read(source, 1 << 16))
    assert relieved.wait(5) and not output.congested
    output.close()


def test_a_broken_pipe_is_reported_once_and_later_writes_are_dropped() -> None:
    source, sink = os.pipe()
    broken: list[int] = []
    output = Output(sink, broken=lambda: broken.append(1))
    os.close(source)
    output.write(b"x")
    output.write(b"x")
    assert broken == [1] and output.closed


def test_closing_does_not_wait_for_a_reader_that_takes_nothing() -> None:
    _source, sink = os.pipe()
    output = Output(sink)
    output.write(b"x" * 1_000_000)
    output.close(0.01)
    assert output.closed
