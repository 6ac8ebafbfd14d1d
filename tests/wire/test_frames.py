import json

from hypothesis import given, strategies as st
import pytest

from dsh_acp.wire import frames
from dsh_acp.wire.stdio import LineSplitter, Overlong


@pytest.mark.parametrize(
    "id",
    [
        "0",
        "1",
        "-1",
        "1.0",
        "1e3",
        "9007199254740993",
        "123456789012345678901234567890",
        '"b4c1-\\u00fc"',
        '""',
        "null",
    ],
)
def test_an_id_is_echoed_as_it_was_written(id: str) -> None:
    frame = frames.decode(f'{{"jsonrpc":"2.0","id": {id} ,"method":"m"}}'.encode())
    assert isinstance(frame, frames.Request)
    assert frame.id == id.encode()
    assert frames.result(frame.id, {}) == b'{"jsonrpc":"2.0","id":%b,"result":{}}\n' % id.encode()


@pytest.mark.parametrize(
    ("line", "code", "id"),
    [
        (b"stitem parent list node", -32700, b"null"),
        (b'{"jsonrpc":"2.0","id":7,"method":', -32700, b"null"),
        (b"\xff\xfe", -32700, b"null"),
        (b"[" * 200_000, -32600, b"null"),
        (
            b'{"id":3,"method":"m","params":' + b"[" * 200_000 + b"]" * 200_000 + b"}",
            -32600,
            b"3",
        ),
        (b"[]", -32600, b"null"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"},7]', -32600, b"null"),
        (b"7", -32600, b"null"),
        (b'"text"', -32600, b"null"),
        (b"null", -32600, b"null"),
        (b"{}", -32600, b"null"),
        (b'{"jsonrpc":"2.0","id":7,"method":5}', -32600, b"7"),
        (b'{"jsonrpc":"2.0","id":{"a":1},"method":"m"}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', -32600, b"null"),
        (b'{"jsonrpc":"2.0","id":[1],"method":"m"}', -32600, b"null"),
    ],
)
def test_a_line_that_is_no_frame_is_answered(line: bytes, code: int, id: bytes) -> None:
    found = frames.decode(line)
    assert isinstance(found, frames.Invalid)
    reply = json.loads(found.reply)
    assert reply["error"]["code"] == code
    assert json.dumps(reply["id"]).encode() == id
    assert found.reply.count(b"\n") == 1


@pytest.mark.parametrize(
    ("line", "params"),
    [
        (b'{"id":1,"method":"m"}', {}),
        (b'{"id":1,"method":"m","params":null}', {}),
        (b'\xef\xbb\xbf{"id":1,"method":"m","params":{"a":1}}', {"a": 1}),
        (b'{"id":1,"method":"m","params":{"a":"\\ud800"}}', {"a": "\ufffd"}),
        (b'{"id":1,"method":"m","params":{"a":"\\ud83d\\ude00"}}', {"a": "\U0001f600"}),
        (b'{"id":1,"method":"m","params":{"a":"x\xffy"}}', {"a": "x\ufffdy"}),
        (b'{"id":1,"method":"m","params":{"a":"tab\there"}}', {"a": "tab\there"}),
        ('{"id":1,"method":"m","params":{"a":"\u2028"}}'.encode(), {"a": "\u2028"}),
        (
            b'{"id":1,"method":"m","params":{"jsonrpc":"2.0","id":9,"_meta":null}}',
            {"jsonrpc": "2.0", "id": 9, "_meta": None},
        ),
    ],
)
def test_odd_but_real_text_is_read(line: bytes, params: object) -> None:
    frame = frames.decode(line)
    assert isinstance(frame, frames.Request)
    assert frame.id == b"1"
    import msgspec

    assert frames.decode_params(frame.params, msgspec.json.Decoder()) == params


def test_an_odd_payload_does_not_change_the_id() -> None:
    frame = frames.decode(b'{"method":"m","params":{"a":"\\ud800","id":5},"id":1.50}')
    assert isinstance(frame, frames.Request)
    assert frame.id == b"1.50"


def test_an_absent_id_is_a_notification_and_null_is_not() -> None:
    absent = frames.decode(b'{"method":"m"}')
    null = frames.decode(b'{"id":null,"method":"m"}')
    assert isinstance(absent, frames.Request) and absent.id is None
    assert isinstance(null, frames.Request) and null.id == b"null"


def test_responses_carry_a_result_or_an_error() -> None:
    good = frames.decode(b'{"id":0,"result":{"a":1}}')
    bad = frames.decode(b'{"id":0,"error":{"code":-32601,"message":"no","data":3}}')
    bare = frames.decode(b'{"jsonrpc":"2.0","id":0}')
    both = frames.decode(b'{"id":0,"result":1,"error":null}')
    odd = frames.decode(b'{"id":0,"error":"no"}')
    assert isinstance(good, frames.Response) and good.result == b'{"a":1}' and not good.error
    assert isinstance(bad, frames.Response) and bad.error and bad.error.code == -32601
    assert isinstance(bare, frames.Response) and bare.result == b"null" and bare.is_bare
    assert isinstance(both, frames.Response) and both.result == b"1" and not both.error
    assert isinstance(odd, frames.Response) and odd.error and odd.error.code == -32603


@pytest.mark.parametrize(
    ("text", "id"),
    [
        (b'{"id":5,"params":{"x":"', b"5"),
        (b'{"jsonrpc":"2.0","params":{"id":9},"id":"a"', b'"a"'),
        (b'{"params":{"id":9,', None),
        (b'{"params":"xxx', None),
        (b'{"params":"\\"id\\":3', None),
        (b'{"text":"...","id":12}', b"12"),
    ],
)
def test_an_id_is_found_in_damaged_text(text: bytes, id: bytes | None) -> None:
    assert frames.find_id(text) == id


def test_an_overlong_line_is_answered_by_the_id_at_either_end() -> None:
    front = frames.overlong(b'{"id":5,"params":"xxx', b'xxx"}', 10)
    back = frames.overlong(b'{"params":"xxx', b'xxx","id":6}', 10)
    assert json.loads(front.reply)["id"] == 5
    assert json.loads(back.reply)["id"] == 6
    assert json.loads(front.reply)["error"]["code"] == -32600


def test_outgoing_text_is_always_utf8_on_one_line() -> None:
    line = frames.notification("m", {"a": "\ud800 \n \u2028 ü", "\udfff": [("\ud800",)]})
    assert line.decode().count("\n") == 1
    assert json.loads(line)["params"] == {"a": "\ufffd \n \u2028 ü", "\ufffd": [["\ufffd"]]}


def test_an_error_message_is_one_line() -> None:
    line = frames.error(b"1", frames.RpcError(-1, "two\nlines"))
    assert json.loads(line)["error"]["message"] == "two lines"


@given(
    st.recursive(
        st.none() | st.integers() | st.text() | st.booleans(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_any_json_text_decodes_to_some_frame(value: object) -> None:
    frames.decode(json.dumps(value).encode())


@given(st.binary(max_size=60))
def test_any_bytes_decode_to_some_frame(data: bytes) -> None:
    frames.decode(data)


# ---------------------------------------------------------------- splitting

STREAM = (
    b'{"a":1}\r\n\n\r\n  \n{"b":"\xe2\x80\xa8\xc2\x85\x0b\x0c"}\n'
    + b"y" * 30
    + b'\n{"c":\r3}\nlast'
)
LINES = [
    b'{"a":1}',
    b'{"b":"\xe2\x80\xa8\xc2\x85\x0b\x0c"}',
    "overlong",
    b'{"c":\r3}',
    b"last",
]


@pytest.mark.parametrize("step", [1, 2, 3, 7, len(STREAM)])
def test_pieces_of_any_size_give_the_same_lines(step: int) -> None:
    splitter = LineSplitter(limit=24)
    found = []
    for at in range(0, len(STREAM), step):
        found += splitter.feed(STREAM[at : at + step])
    found += splitter.end()
    assert ["overlong" if isinstance(line, Overlong) else line for line in found] == LINES


def test_an_overlong_line_keeps_both_ends_and_little_memory() -> None:
    splitter = LineSplitter(limit=100_000)
    found = []
    for piece in [b"<", b"x" * 99_999, b"x" * 400_000, b"x" * 400_000, b">\n", b"next\n"]:
        found += splitter.feed(piece)
    long, after = found
    assert isinstance(long, Overlong)
    assert len(long.head) == 65_536 and long.head[:1] == b"<"
    assert len(long.tail) == 512 and long.tail[-1:] == b">"
    assert after == b"next"
