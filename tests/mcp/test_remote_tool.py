"""Tools of MCP servers as the agent uses them."""

from collections.abc import Callable
import json
from pathlib import Path
from typing import Any, cast

import pytest

from dsh_acp.acp.cards import fallback_card
from dsh_acp.errors import McpError, ToolError
from dsh_acp.log.attachments import Attachments
from dsh_acp.mcp.values import Answer, Attached, Picture, Piece, RemoteTool, Words
from dsh_acp.messages import Image, ImageRef, Text
from dsh_acp.tools.remote import KEPT, Remote
from dsh_acp.tools.tool import Card, ToolContext

PNG = (
    b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\6\0\0\0\x1f\x15\xc4\x89"
    b"\0\0\0\rIDATx\x9cc\xf8\xcf\xc0\xf0\x1f\0\5\0\1\xff\0\0\0\0IEND\xaeB`\x82"
)


class Server:
    """Answers what it is told to."""

    name = "tracker"

    def __init__(self, *pieces: Piece, is_error: bool = False) -> None:
        self.answer = Answer(pieces, is_error)
        self.failure: McpError | None = None
        self.calls: list[tuple[str, dict[str, Any]]] = []

    async def call(
        self, tool: str, arguments: dict[str, Any], show: Callable[[str], None]
    ) -> Answer:
        self.calls.append((tool, arguments))
        show("1/2\n")
        if self.failure is not None:
            raise self.failure
        return self.answer


class Context:
    """What a running call needs here."""

    def __init__(self, folder: Path) -> None:
        self.spill_dir = str(folder / "output")
        self.shown: list[str] = []

    def progress(self, text: str) -> None:
        self.shown.append(text)


class Bench:
    def __init__(self, folder: Path) -> None:
        self.attachments = Attachments(folder)
        self.context = Context(folder)

    async def put(self, data: bytes, media_type: str, name: str) -> ImageRef:
        return self.attachments.put(data, media_type, name)

    def tool(self, server: Server, **fields: Any) -> Remote:
        described = RemoteTool(name="get issue", parameters=b'{"type":"object"}', **fields)
        return Remote("mcp__tracker__get_issue", described, server, self.put)

    async def run(self, server: Server) -> Any:
        context = cast(ToolContext, self.context)
        return await self.tool(server).run({"id": 7}, context)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_the_model_sees_name_description_and_schema(bench: Bench) -> None:
    schema = bench.tool(Server(), description="Read an issue.").schema
    assert schema.name == "mcp__tracker__get_issue"
    assert schema.description == "Read an issue."
    assert bytes(schema.parameters) == b'{"type":"object"}'


def test_a_tool_without_description_is_described_by_its_title_or_name(bench: Bench) -> None:
    assert bench.tool(Server(), title="Get it").schema.description == "Get it"
    assert bench.tool(Server()).schema.description == "get issue"


def test_a_description_beyond_all_measure_is_cut(bench: Bench) -> None:
    assert len(bench.tool(Server(), description="x" * 100_000).schema.description) == 8_000


@pytest.mark.parametrize("hints", [{}, {"read_only": True}, {"destructive": True}])
def test_every_call_is_asked_about_whatever_the_server_says(
    bench: Bench, hints: dict[str, bool]
) -> None:
    tool = bench.tool(Server(), **hints)
    intent = tool.intent({}, "/w")
    assert (intent.effect, intent.scope, intent.paths) == ("other", "", ())
    assert 'the MCP server "tracker"' in (intent.reason or "")
    assert ("only reads" in (intent.reason or "")) == ("read_only" in hints)
    assert tool.is_concurrency_safe({}) == ("read_only" in hints)


def test_arguments_are_passed_on_as_they_are(bench: Bench) -> None:
    tool = bench.tool(Server())
    assert tool.parse("") == {}
    assert tool.parse('{"a": null, "b": [1.5]}') == {"a": None, "b": [1.5]}


@pytest.mark.parametrize("text", ["[1]", '"x"', "{", "7"])
def test_arguments_that_are_no_object_are_refused(bench: Bench, text: str) -> None:
    with pytest.raises(ToolError) as caught:
        bench.tool(Server()).parse(text)
    assert caught.value.code == "INVALID_ARGS"


async def test_an_answer_becomes_blocks(bench: Bench, tmp_path: Path) -> None:
    server = Server(Words("one"), Words(""), Picture(PNG, "image/png"), Words("two"))
    outcome = await bench.run(server)
    one, image, two = outcome.content
    assert (one, two) == (Text("one"), Text("two"))
    assert isinstance(image, Image)
    assert bench.attachments.get(image.attachment) == PNG
    assert not outcome.is_error
    assert server.calls == [("get issue", {"id": 7})]
    assert bench.context.shown == ["1/2\n"]


async def test_an_answer_without_content_says_so(bench: Bench) -> None:
    assert (await bench.run(Server())).content == (Text("(no output)"),)


async def test_a_failed_answer_keeps_the_server_s_words(bench: Bench) -> None:
    outcome = await bench.run(Server(Words("no such issue"), is_error=True))
    assert outcome.is_error
    assert outcome.content == (Text("no such issue"),)


async def test_an_image_that_models_do_not_take_is_mentioned(bench: Bench) -> None:
    [block] = (await bench.run(Server(Picture(b"<svg/>", "image/svg+xml")))).content
    assert isinstance(block, Text)
    assert block.text.startswith("[image/svg+xml, 6 bytes, not shown: ")


async def test_what_is_too_long_to_show_is_whole_in_a_file(bench: Bench) -> None:
    text = "é" * (KEPT + 10)
    first, second = (await bench.run(Server(Words(text), Words("more")))).content
    assert first.text.startswith("é" * KEPT + "\n[… 10 characters left out; all of it is in ")
    assert _kept(first.text, " is in ").decode() == text
    assert "4 characters left out" in second.text


async def test_other_bytes_are_kept_in_a_file(bench: Bench) -> None:
    attached = Attached(b"\0\1", "audio/wav", "file:///a/sound.wav")
    [block] = (await bench.run(Server(attached))).content
    assert block.text.startswith("[file:///a/sound.wav, audio/wav, 2 bytes: saved as ")
    assert block.text.endswith(".wav]")
    assert _kept(block.text, "saved as ") == b"\0\1"


async def test_a_server_that_fails_fails_the_call_in_words(bench: Bench) -> None:
    server = Server()
    server.failure = McpError("it cannot be reached: no route", code="UNREACHABLE")
    with pytest.raises(ToolError) as caught:
        await bench.run(server)
    assert caught.value.code == "MCP_UNREACHABLE"
    assert str(caught.value) == 'the MCP server "tracker" failed: it cannot be reached: no route'


@pytest.mark.parametrize("arguments", ["", '{"id":7}', '{"id', "[1]"])
def test_the_card_is_the_same_with_the_server_and_without(bench: Bench, arguments: str) -> None:
    tool = bench.tool(Server(), title="Get an issue")
    card = tool.call_card(arguments, "/w")
    assert card == fallback_card("mcp__tracker__get_issue", arguments)
    assert card.title == "get_issue (tracker)"
    assert card.kind == "other"
    content = (Text("found"),)
    assert tool.result_card(arguments, content, False, None, "/w") == Card(content=content)
    json.dumps(card.raw_input)


def _kept(text: str, before: str) -> bytes:
    return Path(text.rpartition(before)[2].removesuffix("]")).read_bytes()
