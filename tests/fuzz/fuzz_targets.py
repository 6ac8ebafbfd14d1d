"""What reads bytes that others chose: each parser with what must hold whatever the bytes are.

A target takes any bytes. What it raises is a fault; what it may refuse, it swallows itself. The
same targets are run by hypothesis (`test_fuzz.py`) and by atheris (`coverage_guided.py`).
"""

from collections.abc import Callable
import itertools
import json
from pathlib import Path

from msgspec import Raw, Struct

from dsh_acp import jsontext
from dsh_acp.acp import cards as shown, forms
from dsh_acp.agent import hook_answers, instructions, titles
from dsh_acp.commands import jsonc, paper
from dsh_acp.errors import DshError, LogError, ToolError
from dsh_acp.llm.anthropic_stream import AnthropicStream
from dsh_acp.llm.assemble import Assembler
from dsh_acp.llm.chat_stream import ChatStream
from dsh_acp.llm.content_filter import ContentFilter
from dsh_acp.llm.place import Place
from dsh_acp.llm.response import Malformed, Response
from dsh_acp.llm.sse import BodyReader, SseDecoder
from dsh_acp.log.audit import audit_log, requests
from dsh_acp.log.load import load
from dsh_acp.messages import Chunk, Finish, Text, ToolSchema
from dsh_acp.tools import arguments, cards, confine_denials, edits, encoding, frontmatter, intents
from dsh_acp.tools.fetching import Page
from dsh_acp.tools.legible import block, legible, one_line
from dsh_acp.tools.lines import Normalised
from dsh_acp.tools.output import decode, readable
from dsh_acp.tools.pages import text_of
from dsh_acp.tools.reading import page_of, render
from dsh_acp.tools.schemas import load as schemas
from dsh_acp.tools.search import _matches, _report  # pyright: ignore[reportPrivateUsage]
from dsh_acp.wire import frames

PROJECT = Path(__file__).resolve().parents[2]
TOOLS = (ToolSchema("read", "Read.", Raw(b'{"type":"object","properties":{}}')),)


class Target(Struct, frozen=True):
    """`run` takes any bytes. `seeds` are good beginnings; `tokens` mean something to the parser."""

    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...] = ()
    tokens: tuple[bytes, ...] = ()


def words(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def halves(data: bytes) -> tuple[bytes, bytes]:
    """Two parts, cut where the first byte says."""
    at = data[0] * len(data) // 256 if data else 0
    return data[1 : at + 1], data[at + 1 :]


def pieces(data: bytes) -> list[bytes]:
    """Cut as a network might: at most seven bytes, the length of each told by what it holds."""
    found: list[bytes] = []
    while data:
        size = data[0] % 7 + 1
        found.append(data[:size])
        data = data[size:]
    return found


# ---------------------------------------------------------------- the wire


def wire(data: bytes) -> None:
    found = frames.decode(data)
    if isinstance(found, frames.Invalid):
        json.loads(found.reply)
    elif isinstance(found, frames.Request) and found.id is not None:
        json.loads(found.id)
    json.loads(frames.encode({"text": words(data)}))


def text_of_json(data: bytes) -> None:
    try:
        value = jsontext.loads(data)
    except jsontext.DecodeError:
        return
    assert jsontext.loads(jsontext.encode(value)) == value


def answered_forms(data: bytes) -> None:
    question = {"id": "q", "question": words(data), "options": [{"label": "a"}, {"label": "b"}]}
    json.dumps(forms.request(question))
    try:
        forms.answer(question, data)
    except (ToolError, jsontext.DecodeError, ValueError):
        return


# ---------------------------------------------------------------- answers of models


def _whole_answer(chunks: list[Chunk]) -> None:
    assert isinstance(chunks[-1], Finish)
    assert sum(isinstance(chunk, Finish) for chunk in chunks) == 1
    assembler = Assembler()
    for chunk in chunks:
        assembler.feed(chunk)
    assembler.blocks()
    assembler.replay_state()


def chat(data: bytes) -> None:
    for cut in ([data], pieces(data)):
        ids = map("n{}".format, itertools.count())
        stream = ChatStream(Place("here", model="m"), TOOLS, new_id=ids.__next__)
        chunks = [chunk for piece in cut for chunk in stream.feed(piece)]
        _whole_answer(chunks + stream.end())


def anthropic(data: bytes) -> None:
    for cut in ([data], pieces(data)):
        stream = AnthropicStream(Place("anthropic", model="m"), new_id=lambda: "n")
        _whole_answer([chunk for piece in cut for chunk in stream.feed(piece)] + stream.end())


def events(data: bytes) -> None:
    whole, split = SseDecoder(), SseDecoder()
    once = whole.feed(data) + whole.end()
    assert [e for piece in pieces(data) for e in split.feed(piece)] + split.end() == once
    reader = BodyReader()
    for piece in pieces(data):
        reader.feed(piece)
    assert reader.kind == "events" or reader.whole == data


def response(data: bytes) -> None:
    outcomes: list[object] = []
    for cut in ([data], pieces(data)):
        found = Response()
        for piece in cut:
            found.feed(piece)
        kept = found.keeps_connection
        found.end()
        body = found.take()
        try:
            found.check()
        except Malformed:
            kept = None
        outcomes.append((found.status, found.headers, body, found.is_over, kept))
    assert outcomes[0] == outcomes[1]


def leaked_markup(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    content = ContentFilter(lambda name: {} if name == "read" else None)
    for start in range(0, len(text), 5):
        content.feed(text[start : start + 5])
    content.end()
    titles.clean(text)


# ---------------------------------------------------------------- the log


def session_log(data: bytes) -> None:
    header = b'{"type":"session","version":0,"id":"s1","createdAt":1}\n'
    for whole in (data, header + data):
        try:
            loaded = load(whole)
            loaded.messages()
            list(requests(whole))
        except DshError:
            pass
        try:
            audit_log(whole)
        except LogError:
            pass


# ---------------------------------------------------------------- files and what is in them


def file_text(data: bytes) -> None:
    try:
        text, known = encoding.decode(data)
    except encoding.NotText:
        return
    assert known.encode(text) == data
    plain = Normalised(text)
    assert plain.restore(0, len(plain.text), plain.text) == text
    render("f", page_of(plain.text, 1, 2000))


def edit(data: bytes) -> None:
    old, rest = halves(data)
    text = rest.decode("utf-8", "replace").replace("\r", "")
    wanted = old.decode("utf-8", "replace").replace("\r", "")
    if not wanted:
        return
    for plan in edits.plan(text, wanted, "new\n"):
        ends = [0, *(at for change in plan.changes for at in (change.start, change.end)), len(text)]
        assert ends == sorted(ends)


def front(data: bytes) -> None:
    frontmatter.split(words(data))


def settings(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        before = jsonc.parse(text)
        merged = jsonc.merge(text, {"agent": {"command": "x"}}, frozenset({"command"}))
    except jsonc.JsoncError:
        return
    after = jsonc.parse(merged)
    assert after["agent"]["command"] == "x"
    if isinstance(before, dict):
        assert {k: v for k, v in after.items() if k != "agent"} == {
            k: v for k, v in before.items() if k != "agent"
        }


def hook(data: bytes) -> None:
    code, said = halves(data)
    for point in ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "SessionStart"):
        hook_answers.of(point, 0, words(said), "")
        hook_answers.of(point, (code or b"\0")[0] % 4, words(said), words(code))


def told_before(data: bytes) -> None:
    try:
        source = jsontext.loads(data)
    except jsontext.DecodeError:
        return
    if isinstance(source, dict):
        instructions.seen_in(source)


def page(data: bytes) -> None:
    for media_type in ("text/html", "text/plain", "application/json", "application/xhtml+xml"):
        found = Page("http://x.example/a/b", 200, media_type, None, data)
        try:
            text_of(found)
        except ToolError:
            continue


def matches(data: bytes) -> None:
    found = _matches(data, "/work", None)
    _report(found, sum(len(rows) for _, rows in found))


# ---------------------------------------------------------------- calls and what is shown of them


def calls(data: bytes) -> None:
    text = words(data)
    for name in (*schemas(), "nobody"):
        card = cards.call_card(name, text, "/work")
        cards.result_card(name, text, (Text(text),), False, None, "/work")
        several = name in ("bash", "ask_user_question", "exit_plan_mode")
        assert card.title is not None
        assert several or "\n" not in card.title
        assert "\x1b" not in card.title and "\u202e" not in card.title
        try:
            arguments.parse(name, text)
        except (ToolError, KeyError):
            continue


def command(data: bytes) -> None:
    text = words(data)
    scope = intents.scope_of(text)
    if scope != text.strip():
        assert text.strip().startswith(f"{scope} ")
        assert not set(text.strip()) & set(";&|<>$`\\\"'\n\t*?[]{}~#!()")
    intents.danger(text)


def output(data: bytes) -> None:
    text = decode(data)
    clean = readable(text)
    assert "\x1b" not in clean and "\r" not in clean
    plain = shown.plain(text)
    assert shown.plain(plain) == plain
    shown.fenced(text)
    paper.printable(text)
    for made in (legible(text), one_line(text)):
        assert legible(made) == made
    fence = block(text, "sh").split("\n")[-1]
    assert fence not in legible(text)
    confine_denials.find((data, data[::-1]), "/work", ("/tmp",), network=False)


def _tokens(text: str) -> tuple[bytes, ...]:
    return tuple(token.encode() for token in text.split())


_JSON = _tokens('{ } [ ] : , " \\" \\u0000 \\ud800 null true -0 1e309 "a"')
_CHAT = _tokens(
    'data: {"choices":[{"delta":{ "content":" "tool_calls":[{"index":0,"id":"c" "function":{ '
    '"name":"read" "arguments":"{" }}]} "finish_reason":"stop" "usage":{ [DONE] "reasoning":"'
)
_ANTHROPIC = _tokens(
    'event: data: {"type":"message_start" "content_block_start" "content_block_delta" "index":0 '
    '"content_block":{"type":"tool_use" "delta":{"type":"input_json_delta" "partial_json":" '
    '"message_stop" "message_delta" "stop_reason":"end_turn"'
)
_TAGS = _tokens(
    "<think> </think> <tool_call> </tool_call> <｜DSML｜ <function=read> </function> ``` <invoke "
    '{"name":"read","arguments":{}}'
)
_HTML = _tokens("<div> </div> <table> <tr> <td> <a href= <script> </script> <pre> &amp; <!-- -->")
_SHELL = _tokens("git status ls cat ; && | > $( ` ' \" \\ -m pytest npm run a/b .. = # ~ * \x1b[2K")
LINES = tuple(
    line + b"\n"
    for path in sorted((PROJECT / "fixtures/acp").glob("*/session.jsonl"))[:4]
    for line in path.read_bytes().split(b"\n")[:40]
)

TARGETS: dict[str, Target] = {
    "wire": Target(wire, (b'{"jsonrpc":"2.0","id":1,"method":"m","params":{}}',), _JSON),
    "json": Target(text_of_json, (b'{"a":[1,2.5,"\\ud83d\\ude00"]}',), _JSON),
    "forms": Target(answered_forms, (b'{"action":"accept","content":{"choice":"a"}}',), _JSON),
    "chat": Target(
        chat, (b'data: {"choices":[{"delta":{"content":"a"}}]}\n\ndata: [DONE]\n\n',), _CHAT
    ),
    "anthropic": Target(
        anthropic, (b'event: message_stop\ndata: {"type":"message_stop"}\n\n',), _ANTHROPIC
    ),
    "events": Target(events, (b"event: a\ndata: b\r\n\r\n: c\n\n",), (b"\r", b"\n", b"data:")),
    "response": Target(
        response,
        (
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;x\r\na\r\n0\r\nt: 1\r\n\r\n",
            b"HTTP/1.0 200 OK\nx: a\n b\n\nbody",
        ),
        (b"HTTP/1.1 200 OK\r\n", b"\r\n", b"\n", b"connection: close\r\n", b"204", b"101"),
    ),
    "markup": Target(leaked_markup, (b"a <think>b</think> c",), _TAGS),
    "log": Target(session_log, (b"".join(LINES),), (*LINES[:60], *_JSON)),
    "file": Target(
        file_text, (b"a\r\nb\n", b"\xff\xfea\0", "读写".encode("gbk")), (b"\r\n", b"\0")
    ),
    "edit": Target(
        edit, (b"\x20a\n b\n  c\na\n b\n  c\n",), (b"\n", b"    ", b"\t", b"\xe2\x80\x99")
    ),
    "frontmatter": Target(
        front, (b"---\nname: x\ndescription: |\n  y\n---\nz",), (b"---\n", b": ")
    ),
    "settings": Target(settings, (b'{// a\n"agent": {"command": "y",},}',), (b"//", b"/*", *_JSON)),
    "hook": Target(hook, (b'\x80\0{"decision":"block","reason":"x"}',), _JSON),
    "source": Target(told_before, (b'{"kind":"agent-instructions","changes":[{}]}',), _JSON),
    "page": Target(page, (b"<h1>a</h1><table><tr><td>b</table>",), _HTML),
    "matches": Target(matches, (b"a.py\x001:x\nbinary file matches\n",), (b"\0", b"1:", b"\n")),
    "calls": Target(calls, (b'{"file_path":"a","command":"b"}',), _JSON),
    "command": Target(command, (b"git status -s",), _SHELL),
    "output": Target(output, (b"10%\r100%\x1b[0m\n",), (b"\x1b[", b"\r", b"\x08", b"```", b"\x9b")),
}
