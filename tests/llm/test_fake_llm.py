"""The fake provider itself."""

import http.client
import json
from typing import Any

import pytest

from dsh_acp.llm.fake import FakeLlm, main
from dsh_acp.llm.fake_replies import BEHAVIORS, reply


def ask(
    fake: FakeLlm,
    body: Any = None,
    path: str = "/v1/chat/completions",
    method: str = "POST",
    **headers: str,
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", fake.port, timeout=5)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        connection.request(method, path, data, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_each_request_consumes_one_entry_and_then_the_script_is_exhausted() -> None:
    with FakeLlm(["success", "rate_limit"]) as fake:
        assert ask(fake)[0] == 200
        assert ask(fake)[0] == 429
        status, body = ask(fake)
        assert status == 500 and b"MOCK_SCRIPT_EXHAUSTED" in body
        assert [item.attempt for item in fake.requests] == [1, 2, 3]


def test_the_last_entry_may_repeat_for_ever() -> None:
    with FakeLlm(["rate_limit", "success"], repeat_last=True) as fake:
        assert [ask(fake)[0] for _ in range(4)] == [429, 200, 200, 200]


def test_an_entry_may_wait_for_its_request_and_repeat() -> None:
    script = [{"when": "title", "text": "T", "repeat": 2}, {"text": "A", "repeat": 0}]
    with FakeLlm(script) as fake:
        answers = [ask(fake, {"say": word})[1] for word in ("x", "title", "x", "title", "title")]
        assert [b'"T"' in answer for answer in answers] == [False, True, False, True, False]


def test_a_script_may_be_a_function_of_the_request() -> None:
    with FakeLlm(lambda record: {"text": record.json["say"]}) as fake:
        assert b'"echo"' in ask(fake, {"say": "echo"})[1]


def test_what_is_no_request_consumes_nothing() -> None:
    with FakeLlm(["success"], api_key="k") as fake:
        assert ask(fake, path="/elsewhere")[0] == 404
        assert ask(fake, method="PUT")[0] == 405
        assert ask(fake, authorization="Bearer wrong")[0] == 401
        assert ask(fake, b"{bad", authorization="Bearer k")[0] == 400
        assert fake.requests == []
        assert ask(fake, authorization="Bearer k")[0] == 200
        assert json.loads(ask(fake, path="/v1/models", method="GET")[1])["data"]


@pytest.mark.parametrize("wire", ["openai", "anthropic"])
@pytest.mark.parametrize("name", BEHAVIORS)
def test_every_behavior_has_a_reply_in_both_formats(name: str, wire: Any) -> None:
    assert reply(name, wire).status == BEHAVIORS[name].get("status", 200)


def test_the_terminal_chunk_counts_the_code_points_of_its_text() -> None:
    last = b"".join(reply("success").pieces).split(b"\n\n")[-3]
    assert json.loads(last[6:]) == {
        "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": len("mock response recovered")},
    }


def test_random_behaviors_follow_the_seed() -> None:
    def outcomes() -> list[str]:
        script = [{"behavior": "random", "repeat": 0, "sse": "data: [DONE]\n\n", "end": "complete"}]
        with FakeLlm(script, seed=7) as fake:
            for _ in range(8):
                try:
                    ask(fake)
                except OSError:
                    continue
            return [item.behavior for item in fake.requests]

    first = outcomes()
    assert first == outcomes() and len(set(first)) > 1


def test_a_wrong_command_line_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--behavior", "sing", "--port", "0"]) == 2
    assert "unknown behavior 'sing'" in capsys.readouterr().err


def test_its_help_lists_behaviours_and_fields_and_others_are_refused_by_name(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "partial_stall" in shown and "chunk_delay_ms" in shown
    assert main(["--port", "0", "--behavior", '{"txet": "x"}']) == 2
    assert "unknown field 'txet'" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["99999", "-1", "9" * 30])
def test_a_port_that_cannot_be_is_an_error_in_words(
    port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([f"--port={port}"])
    assert f"argument --port: no port: {port}" in capsys.readouterr().err
