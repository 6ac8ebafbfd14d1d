"""One HTTP response: the same wherever its bytes are cut, and never more than it."""

import pytest

from dsh_acp.llm.response import QUIET_LIMIT, Malformed, Response

SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Request-Id:  7 \r\n\r\nab"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n"
    b"1;x=y\r\na\r\n1\r\nb\r\n0\r\nx: trailer\r\n\r\n"
)
UNSIZED = b"HTTP/1.1 200 OK\r\n\r\nab"
INTERIM = b"HTTP/1.1 103 Early Hints\r\nx: early\r\n\r\n"

WHOLE = [
    (SIZED, True),
    (CHUNKED, True),
    (INTERIM + INTERIM + SIZED, True),
    (SIZED.replace(b"1.1", b"1.0"), False),
    (SIZED.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), False),
    (SIZED.replace(b"\r\n", b"\n"), True),
]


def fed(data: bytes, size: int) -> Response:
    response = Response()
    for at in range(0, len(data), size):
        response.feed(data[at : at + size])
    return response


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
@pytest.mark.parametrize("data, keeps", WHOLE)
def test_a_response_ends_where_it_says(data: bytes, keeps: bool, size: int) -> None:
    response = fed(data, size)
    response.check()
    assert response.status == 200 and response.is_over
    assert response.take() == b"ab" and response.take() == b""
    assert response.keeps_connection == keeps
    assert "early" not in response.headers.values()


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
@pytest.mark.parametrize("data", [SIZED, CHUNKED])
@pytest.mark.parametrize("more", [b"\n", b"\r\n", b"x", SIZED])
def test_what_follows_a_response_is_seen_and_is_no_part_of_it(
    data: bytes, more: bytes, size: int
) -> None:
    response = fed(data + more, size)
    response.check()
    assert response.take() == b"ab"
    assert response.is_followed and not response.keeps_connection


@pytest.mark.parametrize("size", [1, 10_000])
def test_a_response_without_a_length_ends_with_its_connection(size: int) -> None:
    response = fed(UNSIZED, size)
    assert not response.is_over
    response.end()
    response.check()
    assert response.is_over and not response.keeps_connection and response.take() == b"ab"


def test_header_names_are_lower_case_and_values_are_trimmed() -> None:
    assert fed(SIZED, 10_000).headers == {"content-length": "2", "x-request-id": "7"}


@pytest.mark.parametrize("size", [1, 10_000])
@pytest.mark.parametrize(
    "data, body",
    [
        (b"", b""),
        (SIZED[:-1], b"a"),
        (CHUNKED[:-1], b"ab"),
        (CHUNKED.replace(b"\r\n1\r\nb", b"\r\nz\r\nb"), b"a"),
        (INTERIM, b""),
        (b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n", b""),
        (SIZED.replace(b"\r\n\r\n", b"\r\nContent-Length: 3\r\n\r\n"), b""),
        (b"data: a\n\n", b""),
    ],
    ids="nothing short open chunk interim switch lengths other".split(),
)
def test_what_was_good_of_a_bad_response_is_kept_and_the_rest_refused(
    data: bytes, body: bytes, size: int
) -> None:
    response = fed(data, size)
    response.end()
    assert response.take() == body and not response.is_over
    with pytest.raises(Malformed):
        response.check()


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"]
)
def test_heads_and_trailers_without_end_are_refused(head: bytes) -> None:
    response = fed(head + b"x: y\r\n" * (QUIET_LIMIT // 6), 4096)
    with pytest.raises(Malformed):
        response.check()
