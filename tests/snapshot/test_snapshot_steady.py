"""A transcript says the same whatever the pace was."""

from typing import Any

from hypothesis import given, strategies as st

from dsh_acp.snapshot.steady import steady


def frame(kind: str, **fields: Any) -> dict[str, Any]:
    update = {"sessionUpdate": kind, **fields}
    params = {"sessionId": fields.pop("sid", "s"), "update": update}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def chunk(text: str, id: str = "m", kind: str = "agent_message_chunk") -> dict[str, Any]:
    return frame(kind, content={"type": "text", "text": text}, messageId=id)


def piece(data: str, call: str = "c") -> dict[str, Any]:
    meta = {"terminal_output": {"terminal_id": call, "data": data}}
    return frame("tool_call_update", toolCallId=call, _meta=meta)


def end(call: str = "c", **meta: Any) -> dict[str, Any]:
    meta["terminal_exit"] = {"terminal_id": call, "exit_code": 0}
    return frame("tool_call_update", toolCallId=call, status="completed", _meta=meta)


@given(st.lists(st.text(min_size=1), min_size=1))
def test_a_message_cut_anywhere_is_the_same_message(texts: list[str]):
    assert steady(map(chunk, texts)) == [chunk("".join(texts))]


def test_messages_are_told_apart_by_id_kind_and_what_stands_between():
    thought = chunk("b", kind="agent_thought_chunk")
    for frames in (
        [chunk("a"), chunk("b", id="n")],
        [chunk("a"), thought],
        [chunk("a"), {"id": 1, "result": {}}, chunk("b")],
        [chunk("a"), frame("agent_message_chunk", content={"type": "image", "data": ""})],
    ):
        assert steady(frames) == frames


def test_output_of_a_command_stands_in_its_last_update_however_it_was_streamed():
    whole = end(terminal_output={"terminal_id": "c", "data": "one two"})
    whole["params"]["update"]["_meta"] = {
        "terminal_output": {"terminal_id": "c", "data": "one two"},
        "terminal_exit": {"terminal_id": "c", "exit_code": 0},
    }
    assert steady([piece("one "), piece("two"), end()]) == [whole]
    assert steady([piece("one "), chunk("x"), piece("two"), end()]) == [chunk("x"), whole]
    assert steady([whole]) == [whole]


def test_output_that_is_shown_in_version_2_while_a_call_runs_is_a_piece():
    shown = {"type": "content", "content": {"type": "text", "text": "so far"}}
    live = frame("tool_call_content_chunk", toolCallId="c", content=shown)
    ended = frame("tool_call_update", toolCallId="c", status="cancelled", content=[shown])
    job = frame("tool_call_content_chunk", toolCallId="c", content={"type": "terminal"})
    told = frame("tool_call_update", toolCallId="c", status="cancelled", capabilities={})
    assert steady([live, job, live, ended]) == [job, ended]
    assert steady([told]) == [frame("tool_call_update", toolCallId="c", status="cancelled")]


def test_a_shown_text_of_output_is_a_piece_and_a_terminal_in_the_card_is_not():
    shown = [{"type": "content", "content": {"type": "text", "text": "so far"}}]
    card = frame("tool_call_update", toolCallId="c", content=[{"type": "terminal"}])
    assert steady([frame("tool_call_update", toolCallId="c", content=shown), card]) == [card]


def test_that_a_call_runs_or_a_question_is_withdrawn_may_come_or_not():
    runs = frame("tool_call_update", toolCallId="c", status="in_progress")
    titled = frame("tool_call_update", toolCallId="c", status="in_progress", title="t")
    withdrawn = {"method": "$/cancel_request", "params": {"requestId": 0}}
    assert steady([runs, chunk("a"), withdrawn, chunk("b"), titled]) == [chunk("ab"), titled]


def test_a_steady_transcript_stays_as_it_is():
    frames = steady([chunk("a"), chunk("b"), piece("x"), end(), {"id": 1}, chunk("c")])
    assert steady(frames) == frames


def test_a_message_of_version_2_is_whole_however_it_was_begun():
    whole = frame("agent_message", messageId="m", content=[{"type": "text", "text": "ab"}])
    begun = frame("agent_message", messageId="m", content=[{"type": "text", "text": "a"}])
    assert steady([begun, chunk("b")]) == [whole]
    other = [begun, chunk("b", id="n")]
    assert steady(other) == other


def test_a_terminal_of_version_2_has_its_output_at_its_end():
    def ended(**more: Any) -> dict[str, Any]:
        return frame("terminal_update", terminalId="t", **more)

    chunks = [
        frame("terminal_output_chunk", terminalId="t", data=data) for data in ("b3U=", "dAo=")
    ]
    exits = {"exitStatus": {"exitCode": 0}}
    whole = ended(output={"data": "b3V0Cg=="}, **exits)
    assert steady([*chunks, ended(**exits)]) == [whole]
    assert steady([*chunks, ended(**exits, capabilities={})]) == [whole]
    assert steady([ended(capabilities={"cancel": {}}), whole]) == [whole]
