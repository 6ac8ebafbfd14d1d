"""Real HTTP on the loopback interface: what connections do, and what becomes of it."""

from collections.abc import Callable
import json
import subprocess
import sys
from typing import Any

import anyio
from llm_talk import collect, hello
import pytest

from dsh_acp.config import ProviderSettings, Secret
from dsh_acp.llm.anthropic import AnthropicProvider
from dsh_acp.llm.dialects import DIALECTS
from dsh_acp.llm.fake import FakeLlm
from dsh_acp.llm.openai import ChatProvider
from dsh_acp.llm.provider import Provider
from dsh_acp.messages import Chunk, Failure, Finish, TextDelta, UsageChunk

KEY = "sk-live-0123456789abcdef"


def provider(url: str, wire: str = "openai", **fields: Any) -> Provider:
    given = {"api_key": Secret(KEY), "idle_timeout_s": 5.0, **fields}
    settings = ProviderSettings(name="p", dialect=wire, base_url=url, **given)
    if wire == "anthropic":
        return AnthropicProvider(settings)
    return ChatProvider(settings, DIALECTS[wire])


Address = Callable[[FakeLlm], str]


@pytest.fixture(params=["loopback", "internet"])
def address(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Address:
    """Where the fake is, on this machine or far away, which then is behind a proxy."""

    def of(fake: FakeLlm) -> str:
        if request.param == "loopback":
            return fake.url
        monkeypatch.setenv("HTTP_PROXY", fake.url.removesuffix("/v1"))
        return "http://far.invalid/v1"

    return of


def text(chunks: list[Chunk]) -> str:
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, TextDelta))


def failure(chunks: list[Chunk]) -> Failure:
    last = chunks[-1]
    assert isinstance(last, Finish) and isinstance(last.reason.failure, Failure)
    assert KEY not in last.reason.failure.message
    return last.reason.failure


FAILING: list[tuple[str, str, int | None]] = [
    ("connection_reset", "TRANSPORT", None),
    ("stream_disconnect", "TRANSPORT", None),
    ("partial_disconnect", "TRANSPORT", None),
    ("partial_cut", "TRANSPORT", None),
    ("empty_body", "TRANSPORT", None),
    ("stream_eof", "TRANSPORT", None),
    ("partial_eof", "STREAM_CLOSED", None),
    ("empty", "EMPTY_RESPONSE", None),
    ("html", "SERVER", 200),
    ("rate_limit", "RATE_LIMIT", 429),
    ("quota_exceeded", "QUOTA", 429),
    ("payment_required", "QUOTA", 402),
    ("server_error", "SERVER", 500),
    ("service_unavailable", "SERVER", 503),
    ("overloaded", "SERVER", 529),
    ("auth_error", "AUTH", 401),
    ("forbidden", "AUTH", 403),
    ("model_not_found", "MODEL_NOT_FOUND", 404),
    ("invalid_request", "INVALID_REQUEST", 400),
    ("context_overflow", "CONTEXT_WINDOW_EXCEEDED", 400),
    ("exhausted", "SERVER", 500),
]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize("behavior, code, status", FAILING)
async def test_each_failure_ends_the_stream_with_its_code(
    wire: str, behavior: str, code: str, status: int | None, address: Address
) -> None:
    with FakeLlm([behavior]) as fake, anyio.fail_after(30):
        p = provider(address(fake), wire)
        found = failure(await collect(p, hello(p)))
        assert found.code == code
        assert (found.status or None) == status
        await p.aclose()


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"split": 1},
        {"gzip": True},
        {"gzip": True, "split": 3},
        {"content_type": "application/json"},
        {"content_type": "text/plain; charset=latin-1"},
        {"chunk_delay_ms": 1},
        {"headers": {"x-odd": "é"}},
    ],
)
async def test_an_answer_arrives_whole(wire: str, fields: dict[str, Any], address: Address) -> None:
    entry = {"text": "Hello, 读🌍 world\u2028!", "reasoning": "hmm", **fields}
    with FakeLlm([entry]) as fake, anyio.fail_after(30):
        p = provider(address(fake), wire)
        chunks = await collect(p, hello(p))
        assert text(chunks) == "Hello, 读🌍 world\u2028!"
        assert isinstance(chunks[-1], Finish) and chunks[-1].reason.kind == "stop"
        assert isinstance(chunks[-2], UsageChunk)
        await p.aclose()


async def test_bytes_that_are_no_gzip_are_a_malformed_answer(address: Address) -> None:
    entry = {"body": "no gzip", "headers": {"content-encoding": "gzip"}}
    with FakeLlm([entry]) as fake, anyio.fail_after(30):
        p = provider(address(fake))
        assert failure(await collect(p, hello(p))).code == "MALFORMED_RESPONSE"
        await p.aclose()


# LLM-15
@pytest.mark.parametrize(
    "behavior, shown", [("stall", ""), ("partial_stall", "discarded partial response")]
)
async def test_a_silent_stream_times_out(behavior: str, shown: str, address: Address) -> None:
    with FakeLlm([behavior]) as fake, anyio.fail_after(30):
        p = provider(address(fake), idle_timeout_s=0.15)
        chunks = await collect(p, hello(p))
        assert text(chunks) == shown
        found = failure(chunks)
        assert found.code == "TIMEOUT" and "idle_timeout_s" in found.message
        await p.aclose()


# LLM-14: comments are activity.
async def test_keep_alive_comments_hold_a_stream_open(address: Address) -> None:
    sse = [": keep-alive\n\n"] * 12 + ['data: {"choices":[{"delta":{"content":"a"}}]}\n\n']
    entry = {"sse": [*sse, "data: [DONE]\n\n"], "chunk_delay_ms": 50}
    with FakeLlm([entry]) as fake, anyio.fail_after(30):
        p = provider(address(fake), idle_timeout_s=0.4)
        assert text(await collect(p, hello(p))) == "a"
        await p.aclose()


# STREAM-08: the finish reason came, the end never does.
async def test_an_answer_that_is_complete_does_not_wait_for_its_end(address: Address) -> None:
    sse = 'data: {"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n'
    with FakeLlm([{"sse": sse, "end": "stall"}]) as fake, anyio.fail_after(30):
        p = provider(address(fake), idle_timeout_s=0.15)
        chunks = await collect(p, hello(p))
        assert isinstance(chunks[-1], Finish) and chunks[-1].reason.kind == "stop"
        await p.aclose()


async def test_a_connection_is_used_again(address: Address) -> None:
    with FakeLlm(["success", "rate_limit", "tool_call_success", "success"]) as fake:
        p = provider(address(fake))
        with anyio.fail_after(30):
            for _ in range(4):
                await collect(p, hello(p))
        assert fake.connections == 1
        await p.aclose()


async def test_a_cancel_closes_the_connection_at_once(address: Address) -> None:
    with FakeLlm(["partial_stall", "success"]) as fake, anyio.fail_after(30):
        p = provider(address(fake))
        asked = hello(p)
        async with anyio.create_task_group() as group:
            async for chunks in p.stream(asked, p.body(asked)):
                if any(isinstance(chunk, TextDelta) for chunk in chunks):
                    group.cancel_scope.cancel()
        assert await anyio.to_thread.run_sync(fake.wait_for_outcomes)
        assert fake.requests[0].outcome == "stalled" and fake.requests[0].closed_ns
        assert text(await collect(p, asked)) == "mock response recovered"
        await p.aclose()


async def test_closing_the_iterator_closes_the_connection_at_once(address: Address) -> None:
    with FakeLlm(["partial_stall"]) as fake, anyio.fail_after(30):
        p = provider(address(fake))
        asked = hello(p)
        stream: Any = p.stream(asked, p.body(asked))
        await anext(stream)
        await stream.aclose()
        assert await anyio.to_thread.run_sync(fake.wait_for_outcomes)
        await p.aclose()


async def test_a_batch_is_what_one_read_brought() -> None:
    with FakeLlm([{"text": "x", "deltas": 500, "burst": 100}]) as fake, anyio.fail_after(30):
        p = provider(fake.url)
        asked = hello(p)
        sizes = [len(chunks) async for chunks in p.stream(asked, p.body(asked))]
        assert max(sizes) >= 100 and sum(sizes) == 504
        await p.aclose()


async def test_the_server_gets_the_bytes_of_the_body_and_the_headers() -> None:
    with FakeLlm(["success", "success"]) as fake, anyio.fail_after(30):
        p = provider(fake.url, headers={"X-Team": "blue"})
        await collect(p, hello(p))
        got = fake.requests[0]
        assert got.body == p.body(hello(p)).data
        assert got.path == "/v1/chat/completions"
        assert got.headers["authorization"] == f"Bearer {KEY}"
        assert got.headers["x-team"] == "blue"
        assert got.headers["accept"] == "text/event-stream"
        assert got.headers["user-agent"].startswith("dsh-acp/")
        other = provider(fake.url, "anthropic")
        await collect(other, hello(other))
        got = fake.requests[1]
        assert got.path == "/v1/messages" and got.headers["x-api-key"] == KEY
        assert "authorization" not in got.headers and got.headers["anthropic-version"]
        await p.aclose()
        await other.aclose()


async def test_azure_has_its_own_header_and_a_query() -> None:
    with FakeLlm(["success"]) as fake, anyio.fail_after(30):
        p = provider(f"{fake.url}/deployments/d?api-version=2024-10-21", "azure")
        await collect(p, hello(p))
        got = fake.requests[0]
        assert got.path == "/v1/deployments/d/chat/completions?api-version=2024-10-21"
        assert got.headers["api-key"] == KEY and "authorization" not in got.headers
        await p.aclose()


@pytest.mark.parametrize(
    "url, words",
    [
        ("http://127.0.0.1:9", "Is the server running?"),
        ("http://no-such-host.invalid/v1", "base_url"),
        ("ftp://127.0.0.1/v1", "no usable address"),
        ("http://127.0.0.1:99999/v1", "base_url"),
    ],
)
async def test_an_address_where_nobody_answers_says_what_to_check(url: str, words: str) -> None:
    with anyio.fail_after(30):
        p = provider(url)
        found = failure(await collect(p, hello(p)))
        assert found.code == "TRANSPORT" and words in found.message
        await p.aclose()


async def test_a_proxy_of_the_environment_is_used_but_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with FakeLlm(["success"]) as proxy, FakeLlm(["success"]) as fake, anyio.fail_after(30):
        monkeypatch.setenv("HTTP_PROXY", proxy.url.removesuffix("/v1"))
        far = provider("http://far.invalid/v1")
        assert text(await collect(far, hello(far))) == "mock response recovered"
        assert proxy.requests[0].path == "http://far.invalid/v1/chat/completions"
        near = provider(fake.url)
        assert text(await collect(near, hello(near))) == "mock response recovered"
        assert len(proxy.requests) == 1
        await far.aclose()
        await near.aclose()


async def test_certificates_that_are_not_there_fail_the_call_and_not_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/cert.pem")
    p = provider("https://api.example.invalid")
    with anyio.fail_after(30):
        await p.warm()
        assert failure(await collect(p, hello(p))).code == "TRANSPORT"
        await p.aclose()


async def test_whatever_the_endpoint_does_each_call_ends_in_one_finish() -> None:
    script = [{"behavior": "random", "repeat": 0, "chunk_delay_ms": 0}]
    with FakeLlm(script, seed=11) as fake, anyio.fail_after(30):
        p = provider(fake.url, idle_timeout_s=0.1)
        for _ in range(60):
            chunks = await collect(p, hello(p))
            assert [type(chunk) for chunk in chunks].count(Finish) == 1
            assert isinstance(chunks[-1], Finish)
        await p.aclose()
        assert len({item.behavior for item in fake.requests}) > 5


async def test_a_stream_without_a_key_fails_in_words() -> None:
    p = provider("https://api.deepseek.com", "deepseek", api_key=None)
    found = failure(await collect(p, hello(p)))
    assert found.code == "MISSING_CREDENTIAL"
    assert "DEEPSEEK_API_KEY" in found.message and "dsh-acp login p" in found.message


async def test_models_are_discovered_and_a_deaf_endpoint_does_no_harm() -> None:
    listing = [{"id": "m1", "max_model_len": 4096}, "m2"]
    with FakeLlm(models=listing) as fake, anyio.fail_after(30):
        p = provider(fake.url, "vllm")
        assert [info.id for info in await p.discover()] == ["m1", "m2"]
        assert p.model("m1").context_window == 4096
        await p.aclose()
    deaf = provider("http://127.0.0.1:9", "vllm")
    with anyio.fail_after(30):
        assert list(await deaf.discover()) == []
    await deaf.aclose()


PROGRAM = """
import sys, anyio
from dsh_acp.config import ProviderSettings
from dsh_acp.llm.dialects import DIALECTS
from dsh_acp.llm.openai import ChatProvider
from dsh_acp.messages import CallConfig, EpochHeader, Message, Request, Text

heavy = ("httpx", "httpcore", "certifi", "rich", "pydantic", "ssl")
before = [name for name in heavy if name in sys.modules]
p = ChatProvider(ProviderSettings(name="p", base_url=sys.argv[1]), DIALECTS["generic"])
asked = Request("s", EpochHeader(CallConfig("p", "m")), (Message.user((Text("hi"),)),))

async def main():
    await p.warm()
    async for chunks in p.stream(asked, p.body(asked)):
        last = chunks[-1]
    await p.aclose()
    return last.reason.kind

import ssl

loaded = []
ssl.SSLContext.load_verify_locations = lambda *_: loaded.append("certificates")
ssl.SSLContext.load_default_certs = lambda *_: loaded.append("certificates")
kind = anyio.run(main)
after = [*loaded, *(name for name in ("rich", "pydantic", "click") if name in sys.modules)]
print(kind, before, after)
"""


async def test_plain_http_needs_no_certificates_and_nothing_loads_before_the_first_call() -> None:
    with FakeLlm(["success"]) as fake:
        done = await anyio.run_process([sys.executable, "-c", PROGRAM, fake.url], check=False)
    assert done.stdout.decode().strip() == "stop [] []", done.stderr


def test_the_program_prints_its_url_and_is_steered_over_http() -> None:
    import urllib.request

    entry = json.dumps({"text": "hi", "status": 200})
    words = [sys.executable, "-m", "dsh_acp.llm.fake", "--port", "0", "--behavior", entry]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]

        def ask(path: str, method: str = "GET", body: Any = None) -> Any:
            data = None if body is None else json.dumps(body).encode()
            asked = urllib.request.Request(url.removesuffix("/v1") + path, data, method=method)
            with urllib.request.urlopen(asked, timeout=5) as answer:
                return answer.read()

        try:
            assert b'"hi"' in ask("/v1/chat/completions", "POST", {"model": "m"})
            recorded = json.loads(ask("/_requests"))
            assert [(r["body"], r["outcome"]) for r in recorded] == [({"model": "m"}, "completed")]
            ask("/_script", "PUT", ["tool_call_success"])
            ask("/_requests", "DELETE")
            assert b"mock_tool" in ask("/v1/messages", "POST", {"model": "m"})
            assert len(json.loads(ask("/_requests"))) == 1
        finally:
            process.terminate()
