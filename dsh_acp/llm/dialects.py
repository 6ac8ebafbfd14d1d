"""How servers of Chat Completions differ, as data."""

from collections.abc import Mapping
from typing import Any, Final, Literal

from msgspec import Struct

AUTO: Final = ("", "auto", "default")
"""Efforts that mean "say nothing about it"."""


class Dialect(Struct, frozen=True, kw_only=True):
    """One server's habits.

    `efforts` maps an effort to the body fields that ask for it: by its own name, else by `*`, in
    which `$` stands for the effort. `default_efforts` are those of models the catalogue does not
    know. Thinking goes back in `reasoning_field` (`""`: never), with `always_reasoning` even when
    there was none. `parses_arguments`: the server parses the arguments of past calls, so they
    must be JSON. `extras` are body fields for models whose id begins with the key.
    """

    name: str
    base_url: str = ""
    key_env: str = ""
    auth: Literal["bearer", "api-key"] = "bearer"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    reasoning_field: str = ""
    always_reasoning: bool = False
    replays_details: bool = False
    parses_arguments: bool = False
    efforts: Mapping[str, Mapping[str, Any]] = {}
    default_efforts: tuple[str, ...] = ()
    default_effort: str | None = None
    extras: Mapping[str, Mapping[str, Any]] = {}

    def effort_fields(self, effort: str | None) -> dict[str, Any]:
        """The body fields for `effort`; none when nothing is to be said."""
        if effort is None or effort in AUTO:
            return {}
        fields = self.efforts.get(effort, self.efforts.get("*", {}))
        return {name: _filled(value, effort) for name, value in fields.items()}


def _filled(value: Any, effort: str) -> Any:
    if isinstance(value, Mapping):
        return {name: _filled(inner, effort) for name, inner in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return effort if value == "$" else value


_EFFORT: Final[Mapping[str, Mapping[str, Any]]] = {
    "off": {"reasoning_effort": "none"},
    "*": {"reasoning_effort": "$"},
}
_SWITCH: Final[Mapping[str, Mapping[str, Any]]] = {
    "off": {"thinking": {"type": "disabled"}},
    "*": {"thinking": {"type": "enabled"}},
}
_TEMPLATE: Final[Mapping[str, Mapping[str, Any]]] = {
    "off": {"chat_template_kwargs": {"enable_thinking": False, "thinking": False}},
    "*": {
        "reasoning_effort": "$",
        "chat_template_kwargs": {"enable_thinking": True, "thinking": True},
    },
}

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.name: dialect
    for dialect in (
        Dialect(
            name="deepseek",
            base_url="https://api.deepseek.com",
            key_env="DEEPSEEK_API_KEY",
            reasoning_field="reasoning_content",
            always_reasoning=True,
            efforts={
                "off": {"thinking": {"type": "disabled"}},
                "*": {"thinking": {"type": "enabled"}, "reasoning_effort": "$"},
            },
            default_efforts=("off", "low", "high", "max"),
            default_effort="high",
        ),
        Dialect(
            name="openai",
            base_url="https://api.openai.com/v1",
            key_env="OPENAI_API_KEY",
            max_tokens_field="max_completion_tokens",
            efforts=_EFFORT,
        ),
        Dialect(
            name="azure",
            key_env="AZURE_OPENAI_API_KEY",
            auth="api-key",
            max_tokens_field="max_completion_tokens",
            efforts=_EFFORT,
        ),
        Dialect(
            name="openrouter",
            base_url="https://openrouter.ai/api/v1",
            key_env="OPENROUTER_API_KEY",
            reasoning_field="reasoning",
            replays_details=True,
            parses_arguments=True,
            efforts={
                "off": {"reasoning": {"effort": "none"}},
                "*": {"reasoning": {"effort": "$"}},
            },
            default_efforts=("off", "low", "medium", "high"),
            # Anthropic's models cache nothing unless they are asked to.
            extras={"anthropic/": {"cache_control": {"type": "ephemeral"}}},
        ),
        Dialect(
            name="ollama",
            base_url="http://localhost:11434/v1",
            reasoning_field="reasoning",
            parses_arguments=True,
            efforts=_EFFORT,
        ),
        Dialect(
            name="vllm",
            base_url="http://localhost:8000/v1",
            reasoning_field="reasoning_content",
            parses_arguments=True,
            efforts=_TEMPLATE,
            default_efforts=("off", "low", "medium", "high"),
        ),
        Dialect(
            name="sglang",
            base_url="http://localhost:30000/v1",
            reasoning_field="reasoning_content",
            parses_arguments=True,
            efforts=_TEMPLATE,
            default_efforts=("off", "low", "medium", "high"),
        ),
        Dialect(
            name="llama.cpp",
            base_url="http://localhost:8080/v1",
            reasoning_field="reasoning_content",
            parses_arguments=True,
            efforts={
                "off": {"chat_template_kwargs": {"enable_thinking": False}},
                "*": {"chat_template_kwargs": {"enable_thinking": True, "reasoning_effort": "$"}},
            },
            default_efforts=("off", "low", "medium", "high"),
        ),
        Dialect(
            name="moonshot",
            base_url="https://api.moonshot.ai/v1",
            key_env="MOONSHOT_API_KEY",
            reasoning_field="reasoning_content",
            efforts=_SWITCH,
        ),
        Dialect(
            name="zai",
            base_url="https://api.z.ai/api/paas/v4",
            key_env="ZAI_API_KEY",
            reasoning_field="reasoning_content",
            efforts=_SWITCH,
            default_efforts=("off", "high"),
        ),
        Dialect(name="generic", efforts=_EFFORT),
    )
}


def dialect_of(name: str) -> Dialect:
    """The dialect of that name; an unknown name is `generic`."""
    return DIALECTS.get(name, DIALECTS["generic"])
