"""Request bodies: pinned for every dialect, and the same however they are built."""

from collections.abc import Sequence
import hashlib
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings, strategies as st
from llm_talk import PIXELS, Pictures, conversation, hello, request
import msgspec
from msgspec import structs
import pytest

from dsh_acp import jsontext
from dsh_acp.config import ModelSettings, ProviderSettings
from dsh_acp.errors import LlmError, LogError
from dsh_acp.llm import bodies as kept_bodies
from dsh_acp.llm.anthropic import AnthropicProvider
from dsh_acp.llm.dialects import DIALECTS
from dsh_acp.llm.media import Budget
from dsh_acp.llm.openai import ChatProvider
from dsh_acp.llm.provider import Provider
from dsh_acp.messages import (
    CallConfig,
    EpochHeader,
    Image,
    ImageRef,
    Message,
    Reasoning,
    Request,
    Text,
    ToolCall,
)

SNAPSHOTS = Path(__file__).parent / "bodies"
SEEING = {"sees": ModelSettings(vision=True)}


def provider(dialect: str) -> Provider:
    settings = ProviderSettings(name="p", dialect=dialect, models=SEEING)
    if dialect == "anthropic":
        return AnthropicProvider(settings, Pictures())
    return ChatProvider(settings, DIALECTS[dialect], Pictures())


def body(of: Provider, asked: Request) -> dict[str, Any]:
    return json.loads(of.body(asked).data)


def pinned(dialect: str) -> dict[str, bytes]:
    p = provider(dialect)
    more = {"temperature": 0.2, "maxTokens": 9000, "stop": ["X"], "reasoningEffort": "high"}
    title = structs.replace(
        request(p, "m", [Message.user((Text("hello"),), id="u")]), purpose="session-title"
    )
    bare = Request("s", EpochHeader(CallConfig("p", "m")), hello(p).messages)
    return {
        "plain": p.body(request(p, "m")).data,
        "high": p.body(request(p, "m", **more)).data,
        "off": p.body(request(p, "m", reasoningEffort="off")).data,
        "images": p.body(request(p, "sees")).data,
        "title": p.body(title).data,
        "bare": p.body(bare).data,
    }


@pytest.mark.parametrize("dialect", [*DIALECTS, "anthropic"])
def test_the_bodies_of_each_dialect_are_pinned(dialect: str) -> None:
    found = pinned(dialect)
    for text in found.values():
        assert jsontext.encode(json.loads(text)) == text
    shown = json.dumps(
        {name: json.loads(text) for name, text in found.items()}, indent=1, ensure_ascii=False
    )
    path = SNAPSHOTS / f"{dialect}.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(shown + "\n", encoding="utf-8")
        pytest.fail(f"{path.name} was missing and is written now; review it")
    assert shown + "\n" == path.read_text(encoding="utf-8")


def test_the_body_of_the_deepseek_dialect_has_the_order_of_its_format() -> None:
    p = provider("deepseek")
    asked = request(p, "m", reasoningEffort="high", temperature=0.2, maxTokens=5, stop=["X"])
    assert list(body(p, asked)) == [
        "model",
        "messages",
        "stream",
        "stream_options",
        "thinking",
        "reasoning_effort",
        "tools",
        "temperature",
        "max_tokens",
        "stop",
    ]


def roles(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in messages]


# LLM-24, LLM-25: the strict server wants the field on every assistant message.
@pytest.mark.parametrize("effort", ["high", "max", None])
def test_with_thinking_every_assistant_message_carries_its_reasoning(effort: str | None) -> None:
    p = provider("deepseek")
    more = {} if effort is None else {"reasoningEffort": effort}
    said = [m for m in body(p, request(p, "m", **more))["messages"] if m["role"] == "assistant"]
    assert [m["reasoning_content"] for m in said] == ["", "Think.", "", "Only thoughts."]


def test_without_thinking_only_what_was_thought_goes_back() -> None:
    p = provider("deepseek")
    said = body(p, request(p, "m", reasoningEffort="off"))["messages"]
    found = [m.get("reasoning_content") for m in said if m["role"] == "assistant"]
    assert found == [None, "Think.", None, "Only thoughts."]


@pytest.mark.parametrize("dialect", ["openai", "azure", "generic"])
def test_reasoning_stays_away_from_those_who_reject_it(dialect: str) -> None:
    p = provider(dialect)
    text = p.body(request(p, "m")).data
    assert b"Think." not in text and b"thoughts" not in text


EFFORTS: list[tuple[str, str | None, dict[str, Any]]] = [
    ("deepseek", None, {}),
    ("deepseek", "auto", {}),
    ("deepseek", "default", {}),
    ("deepseek", "", {}),
    ("deepseek", "off", {"thinking": {"type": "disabled"}}),
    ("deepseek", "max", {"thinking": {"type": "enabled"}, "reasoning_effort": "max"}),
    ("openai", "off", {"reasoning_effort": "none"}),
    ("openai", "xhigh", {"reasoning_effort": "xhigh"}),
    ("openrouter", "off", {"reasoning": {"effort": "none"}}),
    ("openrouter", "low", {"reasoning": {"effort": "low"}}),
    ("moonshot", "off", {"thinking": {"type": "disabled"}}),
    ("vllm", "off", {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}}),
    ("llama.cpp", "off", {"chat_template_kwargs": {"enable_thinking": False}}),
]


# LLM-27
@pytest.mark.parametrize("dialect, effort, fields", EFFORTS)
def test_an_effort_is_asked_for_in_the_dialect(
    dialect: str, effort: str | None, fields: dict[str, Any]
) -> None:
    p = provider(dialect)
    more = {} if effort is None else {"reasoningEffort": effort}
    found = body(p, request(p, "m", **more))
    names = ("thinking", "reasoning_effort", "reasoning", "chat_template_kwargs")
    assert {name: found[name] for name in names if name in found} == fields


def test_a_title_is_asked_for_without_thinking() -> None:
    p = provider("deepseek")
    title = structs.replace(request(p, "m", reasoningEffort="max"), purpose="session-title")
    assert body(p, title)["thinking"] == {"type": "disabled"}


# LLM-27, CONF: nothing is clamped, and nothing is guessed.
def test_an_effort_that_the_model_does_not_have_is_refused() -> None:
    p = provider("deepseek")
    with pytest.raises(LlmError) as caught:
        p.prepare(CallConfig("p", "m", reasoning_effort="xhigh"))
    assert caught.value.code == "UNSUPPORTED_REASONING_EFFORT"
    text = 'provider "p" model "m" does not support reasoning effort "xhigh"'
    assert caught.value.message == text


def test_preparing_fills_in_the_defaults_of_the_model_and_says_so() -> None:
    settings = ProviderSettings(name="deepseek", dialect="deepseek")
    p = ChatProvider(settings, DIALECTS["deepseek"])
    call = p.prepare(CallConfig("deepseek", "deepseek-v4-flash"))
    assert call.config == CallConfig(
        "deepseek", "deepseek-v4-flash", reasoning_effort="high", max_tokens=256_000
    )
    assert call.adapter_defaults == {"reasoningEffort": True, "maxTokens": True}
    assert call.context_window == 1_000_000
    own = p.prepare(
        CallConfig("deepseek", "deepseek-v4-flash", reasoning_effort="off", max_tokens=5)
    )
    assert own.adapter_defaults == {} and own.config.max_tokens == 5
    auto = p.prepare(CallConfig("deepseek", "unknown-model", reasoning_effort="auto"))
    assert auto.config.reasoning_effort == "high" and auto.context_window is None


# ---------------------------------------------------------------- images


def test_a_model_without_vision_reads_about_images() -> None:
    p = provider("deepseek")
    said = body(p, request(p, "m"))["messages"]
    shown = "[image not shown: dot.png, image/png, 2x1; this model does not see images]"
    assert said[3]["content"] == f"Look\n{shown}"
    assert said[5]["content"] == f"data\n{shown}"


def test_images_of_tool_results_follow_the_run_of_results() -> None:
    p = provider("openai")
    said = body(p, request(p, "sees"))["messages"]
    at = roles(said).index("tool")
    assert roles(said)[at : at + 3] == ["tool", "tool", "user"]
    assert said[at + 2]["content"][0]["text"] == "Attached image(s) from tool result:"
    assert said[at + 2]["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw=="


def test_images_at_the_end_of_a_request_are_sent_and_stay_in_place_later() -> None:
    p = provider("openai")
    whole = conversation("p")
    first = body(p, request(p, "sees", whole[:5]))["messages"]
    assert roles(first)[-2:] == ["tool", "user"]
    later = p.body(request(p, "sees", whole))
    assert later == provider("openai").body(request(p, "sees", whole))


def test_a_missing_image_fails_the_request_loudly() -> None:
    class Nothing:
        def get(self, ref: ImageRef, /) -> bytes:
            raise LogError(f"{ref.attachment_id} is missing", code="ATTACHMENT_MISSING")

    settings = ProviderSettings(name="p", dialect="openai", models=SEEING)
    p = ChatProvider(settings, DIALECTS["openai"], Nothing())
    with pytest.raises(LogError):
        p.body(request(p, "sees"))


def test_the_oldest_images_go_until_half_the_budget_is_free() -> None:
    def picture(number: int) -> Message:
        ref = structs.replace(PIXELS, bytes=30, attachment_id=f"sha256:{number}")
        return Message.user((Image(ref),), id=str(number))

    budget = Budget(lambda ref: True, limit=100)
    dropped: list[int] = []
    for number in range(12):
        budget.add(picture(number))
        dropped.append(budget.dropped)
    assert dropped == [0, 0, 0, 3, 3, 3, 6, 6, 6, 9, 9, 9]


# ---------------------------------------------------------------- anthropic


def breakpoints(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(breakpoints(item) for item in value.values())
    return sum(breakpoints(item) for item in value) if isinstance(value, list) else 0


def test_anthropic_turns_alternate_and_answer_every_call() -> None:
    p = provider("anthropic")
    found = body(p, request(p, "sees"))
    turns = found["messages"]
    assert roles(turns) == ["user", "assistant"] * (len(turns) // 2) + ["user"]
    calls = [b["id"] for t in turns for b in t["content"] if b["type"] == "tool_use"]
    results = [b["tool_use_id"] for t in turns for b in t["content"] if b["type"] == "tool_result"]
    assert calls == results == ["call_1", "functions_read_1", "call_3"]
    for turn in turns:
        kinds = [block["type"] == "tool_result" for block in turn["content"]]
        assert kinds == sorted(kinds, reverse=True)
    assert breakpoints(found) == 3


def test_anthropic_breakpoints_stand_where_the_last_request_ended() -> None:
    p = provider("anthropic")
    whole = conversation("p")
    first = body(p, request(p, "m", whole[:3]))["messages"]
    second = body(p, request(p, "m", whole[:8]))["messages"]
    assert "cache_control" in first[-1]["content"][-1]
    assert second[len(first) - 1] == first[-1]
    for block in (first[0]["content"][-1], second[-1]["content"][-1]):
        assert block.pop("cache_control") == {"type": "ephemeral"}
    assert second[: len(first)] == first


def test_anthropic_thinking_goes_back_signed_to_the_provider_that_signed_it() -> None:
    p = provider("anthropic")
    text = p.body(request(p, "m", reasoningEffort="high")).data
    assert b'{"type":"thinking","thinking":"Think.","signature":"S"}' in text
    assert b"Only thoughts." not in text
    other = AnthropicProvider(ProviderSettings(name="other", dialect="anthropic"))
    assert b'"signature"' not in other.body(request(p, "m")).data


@pytest.mark.parametrize(
    "model, config, thinking",
    [
        ("claude-opus-4-6", {"reasoningEffort": "max"}, {"type": "adaptive"}),
        (
            "claude-sonnet-4-5-20250929",
            {"reasoningEffort": "low", "maxTokens": 32_000},
            {"type": "enabled", "budget_tokens": 4096},
        ),
        (
            "claude-sonnet-4-5",
            {"reasoningEffort": "high", "maxTokens": 4000},
            {"type": "enabled", "budget_tokens": 2976},
        ),
        ("claude-sonnet-4-5", {"reasoningEffort": "high", "maxTokens": 1500}, None),
        ("claude-opus-4-6", {"reasoningEffort": "off"}, None),
        ("claude-opus-4-6", {}, None),
    ],
)
def test_anthropic_thinking_is_asked_for_as_the_model_wants(
    model: str, config: dict[str, Any], thinking: dict[str, Any] | None
) -> None:
    p = provider("anthropic")
    asked = request(p, model, [Message.user((Text("hello"),))], temperature=1.0, **config)
    found = body(p, asked)
    assert found.get("thinking") == thinking
    assert ("temperature" in found) == (thinking is None)


def test_a_budget_model_does_not_think_in_a_round_that_another_model_opened() -> None:
    p = provider("anthropic")
    messages = (
        Message.user((Text("hello"),)),
        Message.assistant((ToolCall("c", "read", "{}"),), "another", "m"),
        Message.tool_result("c", (Text("x"),), False),
    )
    config = {"reasoningEffort": "high", "maxTokens": 32_000}
    assert "thinking" not in body(p, request(p, "claude-sonnet-4-5", messages, **config))
    adaptive = body(p, request(p, "claude-opus-4-6", messages, **config))
    assert adaptive["output_config"] == {"effort": "high"}


# ---------------------------------------------------------------- incremental

BLOCKS = st.one_of(
    st.builds(Text, st.text(max_size=5)),
    st.just(Image(PIXELS)),
)
MESSAGES = st.one_of(
    st.builds(
        lambda blocks, id: Message.user(blocks, id=id),
        st.lists(BLOCKS, max_size=3),
        st.uuids().map(str),
    ),
    st.builds(
        lambda text, thought, call, id: Message.assistant(
            [Reasoning(thought), Text(text), *([ToolCall("c", "read", "{}")] if call else [])],
            "p",
            "m",
            id=id,
        ),
        st.text(max_size=5),
        st.text(max_size=5),
        st.booleans(),
        st.uuids().map(str),
    ),
    st.builds(
        lambda blocks, id: Message.tool_result("c", blocks, False, id=id),
        st.lists(BLOCKS, max_size=2),
        st.uuids().map(str),
    ),
)


@pytest.mark.parametrize("dialect", ["deepseek", "openai", "anthropic"])
@settings(max_examples=30)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=12), data=st.data())
def test_a_body_is_the_same_however_it_came_about(
    dialect: str, messages: list[Message], data: st.DataObject
) -> None:
    kept = provider(dialect)
    sizes = data.draw(st.lists(st.integers(0, len(messages)), max_size=6))
    for size in sizes:
        seen = messages[:size]
        if size and data.draw(st.booleans()):
            changed = data.draw(st.integers(0, size - 1))
            seen[changed] = Message.user((Text("changed"),), id="x")
        model = data.draw(st.sampled_from(["m", "sees"]))
        effort = data.draw(st.sampled_from(["off", "high"]))
        if data.draw(st.booleans()):
            # Equal but not identical, as after a restart.
            seen = [Message(bytes(message.json)) for message in seen]
        asked = request(kept, model, seen, reasoningEffort=effort)
        fresh = provider(dialect).body(asked)
        again = kept.body(asked)
        assert again == fresh
        assert again.sha256 == hashlib.sha256(again.data).hexdigest()
        json.loads(again.data)


# LLM-37
@pytest.mark.parametrize("dialect", ["deepseek", "openai", "vllm"])
def test_the_next_body_extends_the_last_one(dialect: str) -> None:
    p = provider(dialect)
    whole = conversation("p")
    previous = b""
    for size in (1, 3, 6, 8, 10, 12):
        data = p.body(request(p, "m", whole[:size])).data
        messages = data[: data.rindex(b'],"stream":true')]
        assert messages.startswith(previous)
        previous = messages


def test_only_what_is_new_is_encoded() -> None:
    p = provider("deepseek")
    messages = [Message.user((Text("x" * 100),), id=str(n)) for n in range(50)]
    p.body(request(p, "m", messages))
    old = [Message(message.json) for message in messages]
    p.body(request(p, "m", [*old, Message.user((Text("new"),), id="new")]))
    assert not any("content" in vars(message) for message in old)


def test_what_is_kept_is_bounded() -> None:
    form: Any = ChatProvider(ProviderSettings(name="p"), DIALECTS["generic"])
    for number in range(kept_bodies.MAX_SESSIONS + 10):
        form.body(structs.replace(hello(form), session_id=str(number)))
    assert len(form._bodies._kept) == kept_bodies.MAX_SESSIONS


def test_a_one_shot_leaves_the_conversation_alone() -> None:
    p = provider("deepseek")
    asked = request(p, "m")
    first = p.body(asked)
    p.body(structs.replace(hello(p), session_id="s1", purpose="compaction"))
    assert p.body(asked) == first


def test_odd_content_does_not_break_a_body() -> None:
    p = provider("deepseek")
    odd = msgspec.json.encode(
        {
            "content": [{"type": "hologram"}, {"type": "text", "text": "hi"}],
            "source": {"kind": "user"},
            "role": "user",
            "id": "o",
        }
    )
    assert body(p, request(p, "m", [Message(odd)]))["messages"][1]["content"] == "hi"
