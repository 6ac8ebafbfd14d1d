"""Servers behind HTTP: streamable, server-sent events, and those that fail."""

from collections.abc import Iterator
import contextlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import socket
import threading

from mcp_bench import Bench, served
import pytest
import sdk_server

from dsh_acp.config import McpServerSettings
from dsh_acp.errors import McpError


def http(name: str, url: str, **headers: str) -> McpServerSettings:
    return McpServerSettings(name=name, type="http", url=url, headers=headers)


async def test_a_streamable_http_server_offers_and_answers(mcp: Bench) -> None:
    with served(sdk_server.make().streamable_http_app()) as address:
        async with mcp.running(http("web", f"{address}/mcp")):
            await mcp.ready("web")
            assert await mcp.call("mcp__web__add", a=1, b=2) == "3"
            steps: list[str] = []
            await mcp.connection("mcp__web__add").call("slowly", {}, steps.append)
            assert steps == ["1/2 half way\n", "2/2\n"]


async def test_a_call_survives_the_restart_of_an_http_server(mcp: Bench) -> None:
    with contextlib.ExitStack() as old:
        address = old.enter_context(served(sdk_server.make().streamable_http_app()))
        async with mcp.running(http("web", f"{address}/mcp")):
            await mcp.ready("web")
            assert await mcp.call("mcp__web__add", a=1, b=2) == "3"
            old.close()
            with served(sdk_server.make().streamable_http_app(), address):
                assert await mcp.call("mcp__web__add", a=2, b=2) == "4"


async def test_an_http_server_that_is_gone_fails_calls_in_words(mcp: Bench) -> None:
    with contextlib.ExitStack() as old:
        address = old.enter_context(served(sdk_server.make().streamable_http_app()))
        async with mcp.running(http("web", f"{address}/mcp")):
            await mcp.ready("web")
            old.close()
            for sentence in ("it ended before it answered", "it cannot be reached: "):
                with pytest.raises(McpError) as caught:
                    await mcp.call("mcp__web__add", a=1, b=2)
                assert str(caught.value).startswith(sentence)


async def test_an_sse_server_offers_and_answers(mcp: Bench) -> None:
    with served(sdk_server.make().sse_app()) as address:
        server = McpServerSettings(name="old", type="sse", url=f"{address}/sse")
        async with mcp.running(server):
            await mcp.ready("old")
            assert await mcp.call("mcp__old__add", a=1, b=2) == "3"


class _Refusing(BaseHTTPRequestHandler):
    seen: str | None = None

    def do_POST(self) -> None:
        _Refusing.seen = self.headers["Authorization"]
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def refusing() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/mcp?key=0123456789"
        server.shutdown()
        thread.join()


async def test_headers_are_sent_and_a_refusal_is_reported_without_secrets(
    mcp: Bench, refusing: str
) -> None:
    async with mcp.running(http("web", refusing, Authorization="Bearer abcdefgh")):
        await mcp.until(lambda: len(mcp.statuses) == 3)
        assert _Refusing.seen == "Bearer abcdefgh"
        reason = "it answered 401 Unauthorized; it may want a header with a token"
        assert mcp.status("web").reason == reason


async def test_a_port_that_nobody_serves_is_reported(mcp: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with mcp.running(http("web", f"http://127.0.0.1:{port}/mcp")):
        await mcp.until(lambda: len(mcp.statuses) == 3)
        assert mcp.status("web").reason == "All connection attempts failed"


async def test_a_port_that_never_answers_is_given_up_on(mcp: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}/mcp"
        async with mcp.running(http("web", url), connect_s=0.2):
            await mcp.until(lambda: len(mcp.statuses) == 3)
            assert mcp.status("web").reason == "it did not answer within 0.2 s"
