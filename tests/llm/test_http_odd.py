"""Servers that speak HTTP oddly, byte by byte as they do it."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
import gzip
import socket
import subprocess
import sys
import threading
from typing import Any
import zlib

import anyio
from llm_talk import collect, hello
import msgspec
import pytest
from test_http import failure, provider, text

from dsh_acp.llm.fake_http import read_request
from dsh_acp.llm.provider import Body, Provider
from dsh_acp.messages import Chunk

SSE = b'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
OTHER = SSE.replace(b'"a"', b'"b"')
LARGE = 20_000_000

_deflate = zlib.compressobj(wbits=-zlib.MAX_WBITS)
RAW_DEFLATE = _deflate.compress(SSE) + _deflate.flush()


def answer(body: bytes = SSE, *lines: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", *lines, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(head).encode("latin-1") + body


class Raw:
    """Answers each request with the next of `answers`, whatever they are; `None` closes."""

    def __init__(self, answers: Sequence[bytes | None]) -> None:
        self.heads: list[dict[str, str]] = []
        self.connections = 0
        self.closed = threading.Event()
        self._answers = list(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/v1"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._talk(connection)
            self.closed.set()

    def _talk(self, connection: socket.socket) -> None:
        rest = b""
        try:
            while (found := read_request(connection, rest)) is not None:
                self.heads.append(found[2])
                rest = found[4]
                given = self._answers.pop(0) if self._answers else None
                if given is None:
                    return
                connection.sendall(given)
                if self._answers and self._answers[0] is None:
                    self._answers.pop(0)
                    return
        except OSError:
            return

    def close(self) -> None:
        try:
            self._listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._listener.close()


@contextmanager
def raw(*answers: bytes | None) -> Generator[Raw]:
    server = Raw(answers)
    try:
        yield server
    finally:
        server.close()


@contextmanager
def unread(do: Callable[[socket.socket], None]) -> Generator[str]:
    """The URL of a server that reads nothing of a request but its head and then does `do`."""

    def serve() -> None:
        with listener.accept()[0] as connection:
            read = b""
            while b"\r\n\r\n" not in read:
                read += connection.recv(1024)
            do(connection)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
        thread.join(5)


async def sent_large(p: Provider) -> list[Chunk]:
    asked = hello(p)
    body: Body = msgspec.structs.replace(p.body(asked), data=b"x" * LARGE)
    return [chunk async for chunks in p.stream(asked, body) for chunk in chunks]


# ---------------------------------------------------------------- connections kept


@pytest.mark.parametrize(
    "junk",
    [answer(OTHER), answer(b"", status="500 No"), b"junk", b"\r\n"],
    ids=["answer", "failure", "bytes", "line"],
)
async def test_what_follows_an_answer_unasked_is_never_the_next_answer(junk: bytes) -> None:
    with raw(answer() + junk, None, answer()) as server, anyio.fail_after(30):
        p = provider(server.url)
        for _ in range(2):
            assert text(await collect(p, hello(p))) == "a"
        assert server.connections == 2
        await p.aclose()


async def test_a_connection_that_was_closed_unnoticed_is_not_used_again() -> None:
    with raw(answer(), None, answer()) as server, anyio.fail_after(30):
        p = provider(server.url)
        await collect(p, hello(p))
        # The event loop has no chance to hear of it.
        assert server.closed.wait(5)
        assert text(await collect(p, hello(p))) == "a"
        await p.aclose()


# ---------------------------------------------------------------- answers before the request's end


async def test_a_refusal_that_comes_before_the_request_was_read_is_told() -> None:
    def refuse(connection: socket.socket) -> None:
        connection.sendall(answer(b'{"error":{"message":"too big"}}', status="413 Too Large"))

    with unread(refuse) as url, anyio.fail_after(30):
        p = provider(url)
        found = failure(await sent_large(p))
        assert found.status == 413 and "too big" in found.message
        await p.aclose()


async def test_a_request_that_is_never_read_can_be_cancelled() -> None:
    begun, gone = threading.Event(), threading.Event()

    def ignore(connection: socket.socket) -> None:
        begun.set()
        assert gone.wait(5)

    with unread(ignore) as url, anyio.fail_after(30):
        p = provider(url)
        async with anyio.create_task_group() as group:
            group.start_soon(sent_large, p)
            assert await anyio.to_thread.run_sync(begun.wait, 5)
            group.cancel_scope.cancel()
        gone.set()
        await p.aclose()


# ---------------------------------------------------------------- streams without end

FLOOD = """
import signal, socket, sys
signal.alarm(20)
with socket.create_server(("127.0.0.1", 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    connection, _ = listener.accept()
    connection.recv(65536)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\n\\r\\n" + sys.argv[1].encode())
    try:
        while True:
            connection.sendall(b": on and on\\n\\n" * 5000)
    except OSError:
        pass
"""
"""Sends what its argument says, and then nothing that counts, as fast as it can, for 20 seconds."""


@contextmanager
def flood(first: str) -> Generator[tuple[str, subprocess.Popen[str]]]:
    words = [sys.executable, "-c", FLOOD, first]
    with subprocess.Popen(words, stdout=subprocess.PIPE, encoding="utf-8") as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1", process
        finally:
            process.kill()


async def was_left(process: subprocess.Popen[str]) -> bool:
    """Whether the flood ended because its connection was closed."""
    return await anyio.to_thread.run_sync(process.wait) == 0


async def test_a_server_that_never_stops_sending_can_be_cancelled() -> None:
    started = 'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'
    with flood(started) as (url, server):
        p = provider(url)
        asked = hello(p)
        begun = anyio.Event()

        async def listen() -> None:
            async for _ in p.stream(asked, p.body(asked)):
                begun.set()

        async with anyio.create_task_group() as group:
            group.start_soon(listen)
            await begun.wait()
            group.cancel_scope.cancel()
        assert await was_left(server)
        await p.aclose()


async def test_a_server_that_sends_on_after_its_answer_is_left() -> None:
    with flood(SSE.decode()) as (url, server):
        p = provider(url)
        assert text(await collect(p, hello(p))) == "a"
        assert await was_left(server)
        await p.aclose()


# ---------------------------------------------------------------- encodings


@pytest.mark.parametrize(
    "name, body",
    [
        ("deflate", zlib.compress(SSE)),
        ("deflate", RAW_DEFLATE),
        ("Deflate", RAW_DEFLATE),
        ("gzip", gzip.compress(SSE)),
        ("x-gzip", gzip.compress(SSE)),
        ("identity, gzip", gzip.compress(SSE)),
        ("identity", SSE),
        ("none", SSE),
    ],
    ids=["zlib", "bare", "bare-Deflate", "gzip", "x-gzip", "list", "identity", "unknown"],
)
@pytest.mark.parametrize("size", [1, 10_000])
async def test_each_spelling_of_an_encoding_is_undone(name: str, body: bytes, size: int) -> None:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
    head = f"HTTP/1.1 200 OK\r\ncontent-encoding: {name}\r\ntransfer-encoding: chunked\r\n\r\n"
    with raw(head.encode() + chunked + b"0\r\nx-trailer: 1\r\n\r\n") as server:
        p = provider(server.url)
        with anyio.fail_after(30):
            assert text(await collect(p, hello(p))) == "a"
        await p.aclose()


@pytest.mark.parametrize("cut", [1, 5, 12, 40])
async def test_an_encoded_body_that_was_cut_is_no_whole_answer(cut: int) -> None:
    with raw(answer(gzip.compress(SSE)[:cut], "content-encoding: gzip")) as server:
        p = provider(server.url)
        with anyio.fail_after(30):
            assert failure(await collect(p, hello(p))).code in ("TRANSPORT", "STREAM_CLOSED")
        await p.aclose()


# ---------------------------------------------------------------- heads


@pytest.mark.parametrize(
    "given",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + answer(),
        b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" * 50 + answer(),
        answer(SSE, "x: " + "a" * 100_000),
        answer(SSE, "x: ÿþ"),
        answer(SSE, "x: a", " folded"),
        answer(status="200"),
        answer(SSE, "connection: close"),
        b"HTTP/1.0 200 OK\r\n\r\n" + SSE,
        b"HTTP/1.1 200 OK\n\n" + SSE,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x;a=1;b\r\n%s\r\n0\r\n\r\n"
        % (len(SSE), SSE),
    ],
    ids="continue hints long latin folded reason close http10 newlines extensions".split(),
)
async def test_an_odd_head_is_understood(given: bytes) -> None:
    with raw(given, None) as server, anyio.fail_after(30):
        p = provider(server.url)
        assert text(await collect(p, hello(p))) == "a"
        await p.aclose()


@pytest.mark.parametrize(
    "given",
    [
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        answer(SSE, "x: " + "a" * 1_000_000),
        answer(SSE, "content-length: 3"),
        answer(SSE, "a b : 1"),
        SSE,
        b"\x15\x03\x01\x00\x02\x02\x46",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 900\r\n\r\n",
        b"",
    ],
    ids="switch huge lengths name body tls continue chunk cut nothing".split(),
)
async def test_what_is_no_answer_ends_the_call_in_words(given: bytes) -> None:
    with raw(given, None) as server, anyio.fail_after(30):
        p = provider(server.url)
        assert failure(await collect(p, hello(p))).code == "TRANSPORT"
        await p.aclose()


# ---------------------------------------------------------------- what the settings say


@pytest.fixture(params=["loopback", "internet"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """How to reach a server: on this machine, or as a proxy to one far away."""

    def of(url: str) -> str:
        if request.param == "loopback":
            return url
        monkeypatch.setenv("HTTP_PROXY", url.removesuffix("/v1"))
        return "http://far.invalid/v1"

    return of


@pytest.mark.parametrize(
    "headers, name, shown",
    [
        ({"X-Team": "bleu é 読"}, "x-team", "bleu é 読".encode().decode("latin-1")),
        ({"X-Team": ""}, "x-team", ""),
        ({"Host": "other.example"}, "host", "other.example"),
        ({"Content-Length": "3"}, "content-length", None),
        ({"Transfer-Encoding": "chunked"}, "transfer-encoding", None),
    ],
)
async def test_headers_of_the_settings_arrive_but_never_change_where_a_request_ends(
    headers: dict[str, str], name: str, shown: str | None, way: Callable[[str], str]
) -> None:
    with raw(answer()) as server, anyio.fail_after(30):
        p = provider(way(server.url), headers=headers)
        asked = hello(p)
        assert text(await collect(p, asked)) == "a"
        got = server.heads[0]
        assert int(got["content-length"]) == len(p.body(asked).data)
        if shown is None:
            assert "transfer-encoding" not in got
        else:
            assert got[name] == shown
        await p.aclose()


@pytest.mark.parametrize(
    "headers",
    [{"X": "\ud800"}, {"\ud800": "x"}, {"X": "a\nb: c"}, {"X": "\0"}, {"a b": "c"}],
    ids=["surrogate", "surrogate-name", "line", "null", "space"],
)
async def test_headers_that_cannot_be_sent_fail_the_call_in_words(
    headers: dict[str, Any], way: Callable[[str], str]
) -> None:
    with raw(answer()) as server, anyio.fail_after(30):
        p = provider(way(server.url), headers=headers)
        assert failure(await collect(p, hello(p))).code == "TRANSPORT"
        assert not server.heads
        await p.aclose()
