"""Server-sent events: the same events wherever the bytes are cut."""

import itertools

from hypothesis import given, settings, strategies as st
import pytest

from dsh_acp.llm.sse import BodyReader, Event, SseDecoder


def decode(pieces: list[bytes]) -> list[Event]:
    decoder = SseDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.end()


SEPARATORS = "a\u2028b\u2029c\x85d\x0be\x0cf"
LINES = [b"data: a", b"data:b", b":c", b"x", b"event: e", b"\n", b"\r", b"\r\n"]
ROWS: list[tuple[str, list[Event]]] = [
    ("data: a\n\n", [Event(b"a")]),
    ("data:a\n\n", [Event(b"a")]),
    ("data:  a \n\n", [Event(b" a ")]),
    ("data: a\ndata: b\n\n", [Event(b"a\nb")]),
    ("data: a\r\n\r\ndata: b\r\n\r\n", [Event(b"a"), Event(b"b")]),
    ("data: a\r\rdata: b\r\r", [Event(b"a"), Event(b"b")]),
    ("data: a\n\r\ndata: b\r\n\n", [Event(b"a"), Event(b"b")]),
    (": ping\n\n: ping\n\ndata: a\n\n", [Event(b"a")]),
    ("event: error\ndata: a\n\n", [Event(b"a", "error")]),
    ("id: 1\nretry: 5\nevent: x\n\n", []),
    ("\n\n\n\ndata: a\n\n\n\n\n\n", [Event(b"a")]),
    ("\ufeffdata: a\n\n", [Event(b"a")]),
    (
        "data: a\u2028b\u2029c\x85d\x0be\x0cf\n\n",
        [Event("a\u2028b\u2029c\x85d\x0be\x0cf".encode())],
    ),
    ("data: a\n\ndata: b", [Event(b"a"), Event(b"b")]),
    ("data: a\n\ndata: b\n", [Event(b"a"), Event(b"b")]),
    ("data\n\n", []),
    ("data:\n\n", [Event(b"")]),
    ("", []),
]


@pytest.mark.parametrize("text, expected", ROWS)
def test_events_are_read_at_every_split(text: str, expected: list[Event]) -> None:
    body = text.encode()
    assert decode([body]) == expected
    assert decode([body[at : at + 1] for at in range(len(body))]) == expected
    for at in range(len(body)):
        assert decode([body[:at], body[at:]]) == expected


@settings(max_examples=120)
@given(
    st.lists(st.sampled_from(LINES)),
    st.lists(st.integers(0, 60), max_size=8),
)
def test_a_split_changes_nothing(parts: list[bytes], cuts: list[int]) -> None:
    body = b"".join(parts)
    edges = [0, *sorted(min(cut, len(body)) for cut in cuts), len(body)]
    pieces = [body[a:b] for a, b in itertools.pairwise(edges)]
    assert decode(pieces) == decode([body])


def test_events_come_as_soon_as_they_are_complete() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: a\r\n\r") == [Event(b"a")]
    assert decoder.feed(b"\ndata: b\n") == []
    assert decoder.size > 0
    assert decoder.feed(b"\n") == [Event(b"b")]
    assert decoder.size == 0


@pytest.mark.parametrize(
    "body, kind",
    [
        (b"data: {}\n\n", "events"),
        (b": hi\n\n", "events"),
        (b"\xef\xbb\xbf\n {", "json"),
        (b"[1]", "json"),
        (b"\r\n <html>", "page"),
        (b"  \n", None),
        (b"upstream error", "events"),
    ],
)
def test_the_first_byte_tells_what_a_body_is(body: bytes, kind: str | None) -> None:
    for size in (1, 100):
        reader = BodyReader()
        for at in range(0, len(body), size):
            reader.feed(body[at : at + size])
        assert reader.kind == kind
        if kind != "events":
            assert reader.whole == body
