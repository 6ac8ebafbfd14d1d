from hypothesis import given, strategies as st
import pytest

from dsh_acp.acp import cards, servers
from dsh_acp.tools.tool import FileDiff, Location


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]8;;http://e.org\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%\r50%\r100%\n", "100%\n"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("\x07bell\x00", "bell"),
        ("tab\there", "tab\there"),
        ("\x1b(Bx", "x"),
        ("\x1b\x08[31mred", "[31mred"),
    ],
)
def test_terminal_text_becomes_plain(raw: str, plain: str) -> None:
    assert cards.plain(raw) == plain


@given(st.text())
def test_plain_text_is_plain_once_and_for_all(text: str) -> None:
    assert cards.plain(cards.plain(text)) == cards.plain(text)


@given(st.text(min_size=1), st.integers(1, 40))
def test_bounded_text_keeps_both_ends_and_whole_characters(text: str, limit: int) -> None:
    shown = cards.bounded(text, limit)
    if len(text) <= limit:
        assert shown == text
    else:
        assert shown.startswith(text[: limit // 2]) and shown.endswith(
            text[-(limit - limit // 2) :]
        )
        assert "bytes omitted" in shown


@pytest.mark.parametrize("inside", ["plain", "```", "````\n```", "`" * 9])
def test_a_fence_is_longer_than_any_inside(inside: str) -> None:
    first, *_, last = cards.fenced(inside).split("\n")
    assert first == f"{last}console" and last not in inside


def test_diffs_and_locations_leave_out_what_is_not_known() -> None:
    assert cards.diffs([FileDiff("/a", None, "x"), FileDiff("/b", "", "y")]) == [
        {"type": "diff", "path": "/a", "newText": "x"},
        {"type": "diff", "path": "/b", "oldText": "", "newText": "y"},
    ]
    assert cards.locations([Location("/a"), Location("/b", 3)]) == [
        {"path": "/a"},
        {"path": "/b", "line": 3},
    ]


@pytest.mark.parametrize(
    ("arguments", "value"), [("", {}), ('{"a":1}', {"a": 1}), ("{oops", "{oops")]
)
def test_arguments_are_shown_as_what_they_are(arguments: str, value: object) -> None:
    assert cards.parsed(arguments) == value


# ---------------------------------------------------------------- MCP servers


def test_servers_are_read_in_every_shape_that_clients_send() -> None:
    found, problems = servers.parse(
        [
            {"name": "a", "command": "/bin/srv"},
            {"type": "stdio", "name": "b", "command": "srv", "args": ["x"], "env": []},
            {
                "name": "idea",
                "command": "/opt/java",
                "args": ["-cp", "x", "Main"],
                "env": [{"name": "PORT", "value": "64342"}],
            },
            {"name": "o", "command": "srv", "env": {"K": "v"}, "args": None},
            {"type": "http", "name": "c", "url": "http://127.0.0.1:9/mcp"},
            {
                "type": "sse",
                "name": "d",
                "url": "http://x",
                "headers": [{"name": "A", "value": "b"}],
            },
            {"name": "e", "url": "http://x"},
        ]
    )
    assert problems == []
    by_name = {server.name: server for server in found}
    assert by_name["a"].command == "/bin/srv" and by_name["a"].args == ()
    assert by_name["idea"].env == {"PORT": "64342"} and by_name["o"].env == {"K": "v"}
    assert (by_name["c"].type, by_name["d"].type, by_name["e"].type) == ("http", "sse", "http")
    assert by_name["d"].headers == {"A": "b"}


def test_what_is_no_server_is_named() -> None:
    found, problems = servers.parse(
        [{"name": "a"}, {"type": "carrier-pigeon", "name": "b"}, 7, {"command": "x"}]
    )
    assert found == ()
    assert [problem.split(" is left out")[0] for problem in problems] == [
        'The MCP server "a"',
        'The MCP server "b"',
        "The MCP server number 3",
        "The MCP server number 4",
    ]


@pytest.mark.parametrize("nothing", [None, [], {}, ""])
def test_no_servers_are_no_problem(nothing: object) -> None:
    assert servers.parse(nothing) == ((), [])
