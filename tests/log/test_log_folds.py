"""Headers, the token meter, consumed work: folds with rules of their own."""

from typing import Any

from log_samples import HEADER, Recorder, memory_log, user
import msgspec
import pytest

from dsh_acp.log import consumed, header as headers
from dsh_acp.log.events import (
    AssistantMessage,
    InboxSpliced,
    RequestHeader,
    TurnEnd,
    TurnEndReason,
    TurnStart,
    UserMessage,
)
from dsh_acp.log.token_meter import TokenMeter, length, price_header, price_message
from dsh_acp.messages import (
    CallConfig,
    EpochHeader,
    Message,
    Raw,
    Reasoning,
    Text,
    ToolCall,
    ToolSchema,
    Usage,
)


def tool(name: str, parameters: bytes = b"{}") -> ToolSchema:
    return ToolSchema(name, "d", Raw(parameters))


def test_empty_is_absent_in_a_canonical_header() -> None:
    header = EpochHeader(
        CallConfig("p", "m", temperature=1.0),
        adapter_defaults={"maxTokens": False},
        system="",
        tools=(),
        message_prefix=(),
        message_suffix=(),
    )
    assert headers.encode(header) == b'{"config":{"provider":"p","model":"m","temperature":1}}'


def test_keys_come_in_the_canonical_order_and_strange_ones_are_dropped() -> None:
    text = (
        b'{"messageSuffix":[{"a":1}],"tools":[{"name":"t","description":"d","parameters":{"b":1,'
        b'"a":2}}],"system":"s","extra":1,"adapterDefaults":{"maxTokens":true,"x":true},'
        b'"messagePrefix":[{"role":"user","content":[]}],"config":{"model":"m","provider":"p"}}'
    )
    assert headers.encode(headers.decode(text)) == (
        b'{"config":{"provider":"p","model":"m"},"adapterDefaults":{"maxTokens":true},"system":"s",'
        b'"tools":[{"name":"t","description":"d","parameters":{"b":1,"a":2}}],'
        b'"messagePrefix":[{"role":"user","content":[]}],"messageSuffix":[{"a":1}]}'
    )


CONFIG = CallConfig("p", "m")


@pytest.mark.parametrize(
    ("a", "b", "field"),
    [
        (EpochHeader(CONFIG), EpochHeader(CallConfig("q", "m")), "provider"),
        (EpochHeader(CONFIG), EpochHeader(CallConfig("p", "n")), "model"),
        (EpochHeader(CONFIG), EpochHeader(CallConfig("p", "m", "low")), "reasoningEffort"),
        (EpochHeader(CONFIG), EpochHeader(CallConfig("p", "m", max_tokens=1)), "maxTokens"),
        (EpochHeader(CONFIG), EpochHeader(CallConfig("p", "m", stop=("a",))), "stop"),
        (
            EpochHeader(CONFIG),
            EpochHeader(CONFIG, adapter_defaults={"maxTokens": True}),
            "adapterDefaults",
        ),
        (EpochHeader(CONFIG), EpochHeader(CONFIG, system="s"), "system"),
        (
            EpochHeader(CONFIG, tools=(tool("a"), tool("b"))),
            EpochHeader(CONFIG, tools=(tool("b"), tool("a"))),
            "tools",
        ),
        (
            EpochHeader(CONFIG, tools=(tool("a", b'{"x":1,"y":2}'),)),
            EpochHeader(CONFIG, tools=(tool("a", b'{"y":2,"x":1}'),)),
            "tools",
        ),
        (EpochHeader(CONFIG), EpochHeader(CONFIG, message_prefix=(Raw(b"{}"),)), "messagePrefix"),
        (EpochHeader(CONFIG), EpochHeader(CONFIG, message_suffix=(Raw(b"{}"),)), "messageSuffix"),
        (EpochHeader(CONFIG), EpochHeader(CONFIG, system="", tools=()), None),
        (
            EpochHeader(CallConfig("p", "m", temperature=1.0)),
            EpochHeader(CallConfig("p", "m", temperature=1)),
            None,
        ),
    ],
)
def test_the_first_difference_between_headers_is_named(a: Any, b: Any, field: str | None) -> None:
    assert headers.first_difference(a, b) == field
    assert headers.equal(a, b) is (field is None)
    assert (headers.encode(a) == headers.encode(b)) is (field is None)


def test_nothing_equals_nothing_only() -> None:
    assert headers.equal(None, None)
    assert not headers.equal(None, HEADER)


def test_the_fold_gives_the_last_snapshot() -> None:
    log = memory_log()
    recorder = Recorder(log)
    recorder.begin()
    assert headers.fold(log.events()) is None
    assert headers.fold(log.events(), HEADER) == HEADER
    recorder.header()
    other = EpochHeader(CallConfig("p", "other"))
    recorder.header(other)
    assert headers.fold(log.events()) == other == log.request_header()
    assert log.request_header() is log.request_header()


def test_a_header_that_is_none_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        headers.decode(b'{"config":{"provider":"p","model":"m"},"tools":"x"}')


# ---------------------------------------------------------------- tokens


def test_lengths_are_utf_16_units() -> None:
    assert [length(text) for text in ("", "abc", "é", "😀")] == [0, 3, 1, 2]


def test_prices_follow_the_table() -> None:
    assert price_message(user("x" * 9)) == 3 + 4 + 4
    answer = Message.assistant(
        [Reasoning("r" * 4), Text("t"), ToolCall("c", "name", "1234567")], "p", "m"
    )
    assert price_message(answer) == (1 + 4) + (1 + 4) + (1 + 2 + 4) + 4
    result = Message.tool_result("c", [Text("1234"), Text("")], False)
    assert price_message(result) == (1 + 4) + (0 + 4) + 4 + 4
    assert price_header(None) == 0
    assert price_header(EpochHeader(CONFIG, system="12345")) == 2 + 4
    tools = EpochHeader(CONFIG, tools=(tool("a"),))
    text = '[{"name":"a","description":"d","parameters":{}}]'
    assert price_header(tools) == -(-len(text) // 4) + 4


def test_the_providers_count_anchors_the_measurement() -> None:
    log = memory_log()
    meter = TokenMeter(log)
    assert meter.measure().total_tokens == 0
    recorder = Recorder(log)
    recorder.begin("question")
    recorder.header()
    first = meter.measure()
    assert first.baseline is None
    assert first.total_tokens == price_header(HEADER) + price_message(user("question"))
    message = Message.assistant([Text("answer")], "p", "m")
    log.append(
        AssistantMessage(1, 1, message, usage=Usage(1_000, 50, cache_read_tokens=500)), sources=[]
    )
    second = meter.measure()
    assert second.baseline is not None
    assert (second.baseline.kind, second.total_tokens) == (
        "usage",
        1_550 + price_message(user("question")),
    )
    before = second.total_tokens
    log.append(UserMessage(user("more")))
    third = meter.measure()
    assert third.total_tokens == before + price_message(user("more"))
    assert [node.seq for node in third.nodes] == log.surface.nodes
    log.append(RequestHeader(EpochHeader(CallConfig("p", "other")), "change"))
    assert meter.measure().total_tokens == sum(node.tokens for node in third.nodes)


def test_a_small_count_is_not_believed_and_compaction_lowers_the_figure() -> None:
    log = memory_log()
    meter = TokenMeter(log)
    recorder = Recorder(log)
    recorder.tool_turn("x" * 4_000)
    measured = meter.measure()
    assert measured.baseline is not None
    assert measured.baseline.kind == "estimated"
    nodes = log.surface.nodes
    recorder.compact(nodes[0], nodes[-1])
    after = meter.measure()
    assert after.total_tokens < measured.total_tokens - 900
    assert len(after.nodes) == 1
    assert TokenMeter(log).measure() == after


# ---------------------------------------------------------------- consumed work


def test_a_turn_with_a_step_accounts_for_work() -> None:
    log = memory_log()
    recorder = Recorder(log)
    assert consumed.fold(log.events()) == consumed.ConsumedWork()
    recorder.tool_turn()
    found = consumed.fold(log.events())
    assert found.end is not None
    assert (found.end.turn, found.dropped_unrun) == (1, False)
    log.append(InboxSpliced("next-turn", 0, removed_count=1, outcome="canceled"))
    assert consumed.fold(log.events()).dropped_unrun
    recorder.tool_turn()
    assert not consumed.fold(log.events()).dropped_unrun


@pytest.mark.parametrize(("kind", "counts"), [("blocked", True), ("completed", False)])
def test_a_claim_without_a_step_accounts_unless_the_turn_completed(kind: str, counts: bool) -> None:
    log = memory_log()
    log.append(TurnStart(1))
    log.append(InboxSpliced("next-turn", 0, removed_count=1))
    log.append(TurnEnd(1, TurnEndReason(kind)))
    assert (consumed.fold(log.events()).end is not None) is counts
