"""What refusals mean: status and body in, code and sentence out."""

import json
from typing import Any

from hypothesis import given, strategies as st
import pytest

from dsh_acp.llm.failures import from_page, from_response, from_stream, from_transport
from dsh_acp.llm.place import Place, is_loopback, join
from dsh_acp.llm.waiting import retry_after_ms

NOW = 1_800_000_000.0
KEY = "sk-live-0123456789abcdef"
PLACE = Place(
    provider="deepseek",
    base_url="https://user:secret@api.example.test/v1?key=1",
    model="deepseek-x",
    key_env="DEEPSEEK_API_KEY",
    known_models=("deepseek-v4-flash", "deepseek-v4-pro"),
    secret=KEY,
)


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


OVERFLOW = (
    "This model's maximum context length is 1048576 tokens. However, you requested 1057726 tokens "
    "(993726 in the messages, 64000 in the completion). Please reduce the length of the messages "
    "or completion."
)

STATUSES: list[tuple[int, Any, str, str]] = [
    (401, error("Incorrect API key"), "AUTH", "run `dsh-acp login deepseek`"),
    (401, error("insufficient quota"), "AUTH", "DEEPSEEK_API_KEY"),
    (402, error("Insufficient Balance"), "QUOTA", "Top up"),
    (403, error("not allowed"), "AUTH", "Check what the key may use"),
    (403, error("Your account balance is exhausted"), "QUOTA", "Top up"),
    (404, error("Model Not Exist"), "MODEL_NOT_FOUND", "known are deepseek-v4-flash"),
    (400, error("Model Not Exist", type="invalid_request_error"), "MODEL_NOT_FOUND", "deepseek-x"),
    (404, error("model: claude-x", type="not_found_error"), "MODEL_NOT_FOUND", "deepseek-x"),
    (404, "<html>nginx</html>", "HTTP_404", "base_url"),
    (400, error("The model `x` does not exist"), "MODEL_NOT_FOUND", "deepseek-x"),
    (400, error(OVERFLOW, code="invalid_request_error"), "CONTEXT_WINDOW_EXCEEDED", "/compact"),
    (400, error("x", code="context_length_exceeded"), "CONTEXT_WINDOW_EXCEEDED", "/compact"),
    (400, error("prompt is too long: 210000 tokens > 200000"), "CONTEXT_WINDOW_EXCEEDED", ""),
    (400, error("the request exceeds the available context size"), "CONTEXT_WINDOW_EXCEEDED", ""),
    (400, error("input length exceeds the context length"), "CONTEXT_WINDOW_EXCEEDED", ""),
    (
        400,
        error("The input is longer than the model's context length"),
        "CONTEXT_WINDOW_EXCEEDED",
        "",
    ),
    (413, error("Request too large"), "CONTEXT_WINDOW_EXCEEDED", "/compact"),
    (413, error("Request exceeds 32 MB"), "INVALID_REQUEST", "Remove large attachments"),
    (413, "", "INVALID_REQUEST", "too large"),
    (400, error("reasoning_effort: unknown variant `auto`"), "INVALID_REQUEST", "`auto`"),
    (422, {"detail": [{"msg": "field required"}]}, "INVALID_REQUEST", "field required"),
    (429, error("slow down"), "RATE_LIMIT", "Wait a little"),
    (429, error("x", code="insufficient_quota"), "QUOTA", "Top up"),
    (429, error("You exceeded your current quota, please check your plan"), "QUOTA", ""),
    (
        429,
        [{"error": {"message": "You exceeded your current quota. Please retry in 34.5s."}}],
        "RATE_LIMIT",
        "",
    ),
    (408, "", "TIMEOUT", "Try again"),
    (500, error("boom"), "SERVER", "deepseek failed (HTTP 500): boom."),
    (502, "<html><title>502 Bad Gateway</title></html>", "SERVER", "502 Bad Gateway"),
    (503, "", "SERVER", "Try again in a moment"),
    (529, error("Overloaded", type="overloaded_error"), "SERVER", "deepseek is overloaded"),
    (418, error("teapot"), "HTTP_418", "teapot"),
    (307, "", "HTTP_307", "base_url"),
    (400, error("Content Exists Risk"), "CONTENT_FILTER", "Rephrase"),
    (400, error("flagged", code="content_filter"), "CONTENT_FILTER", "Rephrase"),
    (
        500,
        {"error": {"message": "Provider returned error", "metadata": {"raw": "upstream"}}},
        "SERVER",
        "upstream",
    ),
    (500, {"error": "in plain words"}, "SERVER", "in plain words"),
    (500, {"error": True}, "SERVER", "HTTP 500"),
    (500, b"\xff\xfe", "SERVER", "HTTP 500"),
]


@pytest.mark.parametrize("status, body, code, words", STATUSES)
def test_a_status_has_its_code_and_its_sentence(
    status: int, body: Any, code: str, words: str
) -> None:
    data = (
        body
        if isinstance(body, bytes)
        else (body.encode() if isinstance(body, str) else json.dumps(body).encode())
    )
    failure = from_response(PLACE, status, {"x-request-id": "r-1"}, data, NOW)
    assert (failure.code, failure.status, failure.request_id) == (code, status, "r-1")
    assert words in failure.message and failure.message.endswith(".")
    assert "\n" not in failure.message and len(failure.message) < 700


IN_STREAM: list[tuple[Any, str]] = [
    ({"error": {"code": 502, "message": "provider_unavailable"}}, "SERVER"),
    ({"error": {"code": "429", "message": "x"}}, "RATE_LIMIT"),
    ({"error": {"message": "x", "type": "rate_limit_error"}}, "RATE_LIMIT"),
    ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "SERVER"),
    ({"error": {"type": "authentication_error", "message": "invalid x-api-key"}}, "AUTH"),
    ({"error": {"code": 400, "message": "bad"}}, "INVALID_REQUEST"),
    ({"error_type": "BadRequestError", "error_message": "no"}, "INVALID_REQUEST"),
    ({"error": "Request timed out"}, "TIMEOUT"),
    ({"error": "insufficient credits"}, "QUOTA"),
    ({"error": OVERFLOW}, "CONTEXT_WINDOW_EXCEEDED"),
    ({"error": "something odd"}, "SERVER"),
    ("just words", "SERVER"),
    (None, "SERVER"),
]


@pytest.mark.parametrize("value, code", IN_STREAM)
def test_an_error_inside_a_stream_has_its_code(value: Any, code: str) -> None:
    assert from_stream(PLACE, value).code == code


QUOTED = [
    f"Incorrect API key provided: {KEY}. You can find it",
    "Incorrect API key provided: sk-proj-abcd****wxyz.",
    "header was Authorization: Bearer abcdefghijklmnop",
    "AIzaSyA0123456789abcdefgh is not valid",
    f"request to https://u:{KEY}@host failed",
]


@pytest.mark.parametrize("text", QUOTED)
def test_no_sentence_holds_a_key(text: str) -> None:
    body = json.dumps(error(text)).encode()
    found = [
        from_response(PLACE, 401, {}, body, NOW).message,
        from_stream(PLACE, error(text)).message,
        from_page(PLACE, f"<html>{text}</html>").message,
        from_transport(PLACE, "TRANSPORT", text).message,
    ]
    for message in found:
        assert "[key]" in message
        for secret in (KEY, "sk-proj", "abcdefghijklmnop", "AIzaSy", "secret@", "key=1"):
            assert secret not in message


DATE = "Fri, 15 Jan 2027 08:00:30 GMT"

WAITS: list[tuple[dict[str, str], str, int | None]] = [
    ({"retry-after": "2"}, "", 2000),
    ({"retry-after": "0.5"}, "", 500),
    ({"retry-after": "0"}, "", None),
    ({"retry-after": "-3"}, "", None),
    ({"retry-after": "soon"}, "", None),
    ({"retry-after": DATE}, "", 30_000),
    ({"retry-after": "Fri, 15 Jan 2027 07:59:00 GMT"}, "", None),
    ({"retry-after-ms": "250", "retry-after": "9"}, "", 250),
    (
        {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1m30s"},
        "",
        90_000,
    ),
    ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "20ms"}, "", 20),
    ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "20ms"}, "", None),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000005000"}, "", 5000),
    ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1800000007"}, "", 7000),
    (
        {
            "anthropic-ratelimit-requests-remaining": "0",
            "anthropic-ratelimit-requests-reset": "2027-01-15T08:00:10Z",
        },
        "",
        10_000,
    ),
    ({}, "Please try again in 20s.", 20_000),
    ({}, "Please try again in 1m2.5s.", 62_500),
    ({}, "try again in 350ms", 350),
    ({}, 'x "retryDelay": "34s"', 34_000),
    ({}, "Retry in 8 seconds", 8000),
    ({}, "try again later", None),
    ({}, "wait 5 smiles", None),
]


@pytest.mark.parametrize("headers, text, expected", WAITS)
def test_the_time_to_wait_is_read(headers: dict[str, str], text: str, expected: int | None) -> None:
    assert retry_after_ms(headers, text, NOW) == expected


@given(st.dictionaries(st.sampled_from(["retry-after", "retry-after-ms"]), st.text(max_size=12)))
def test_any_header_is_survived(headers: dict[str, str]) -> None:
    delay = retry_after_ms(headers, "", NOW)
    assert delay is None or delay > 0


@pytest.mark.parametrize(
    "url, local",
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:1/v1", True),
        ("https://api.deepseek.com", False),
        ("https://localhost.example.com", False),
        ("nonsense", False),
    ],
)
def test_an_address_on_this_machine_is_known(url: str, local: bool) -> None:
    assert is_loopback(url) is local


@pytest.mark.parametrize(
    "base, whole",
    [
        ("https://a/v1", "https://a/v1/chat/completions"),
        ("https://a/v1/", "https://a/v1/chat/completions"),
        ("https://a/v1/chat/completions", "https://a/v1/chat/completions"),
        ("https://a/d?api-version=1", "https://a/d/chat/completions?api-version=1"),
    ],
)
def test_the_path_goes_before_the_query(base: str, whole: str) -> None:
    assert join(base, "/chat/completions") == whole


def test_a_sentence_that_asks_gets_no_second_end_and_a_short_key_is_no_key() -> None:
    place = Place("here", "http://127.0.0.1:9/v1", "m", secret="x")
    shown = from_transport(place, "TRANSPORT", "exhausted. Is the server running?").message
    assert shown.startswith("exhausted. Is the server running? Check the network")
