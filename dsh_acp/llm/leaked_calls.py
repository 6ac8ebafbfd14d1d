"""Tool calls that a model wrote as text, read back into names and arguments.

Models are trained on a markup for calls that their server turns into structure. A server that
does not leaves it in the content. Known here: DeepSeek's DSML and special tokens, Kimi's section
tokens, `<tool_call>` with JSON, with `<function=…>` or with `<arg_key>`, and `<invoke>` in its
wrappers.
"""

from collections.abc import Callable, Mapping
import re
from typing import Any, Final, cast

from msgspec import Struct

from dsh_acp import jsontext


class Markup(Struct, frozen=True):
    """How a family opens and closes. `is_special`: nobody writes it except to call a tool."""

    opens: str
    closes: tuple[str, ...]
    is_special: bool = False


_DSML_CLOSES: Final = tuple(
    f"</{bar}DSML{bar}{name}>"
    for bar in ("｜", "|")
    for name in ("tool_calls", "function_calls", "calls")
)
MARKUPS: Final = (
    Markup("<｜DSML｜", _DSML_CLOSES, True),
    Markup("<|DSML|", _DSML_CLOSES, True),
    Markup("<｜tool▁calls▁begin｜>", ("<｜tool▁calls▁end｜>",), True),
    Markup("<|tool_calls_section_begin|>", ("<|tool_calls_section_end|>",), True),
    Markup("<tool_call>", ("</tool_call>",)),
    Markup("<function_calls>", ("</function_calls>",)),
    Markup("<tool_calls>", ("</tool_calls>",)),
    Markup("<invoke name=", ("</invoke>",)),
)

# Texts, compiled when a leaked call is first read: starting up must not pay for them.
_DSML: Final = r"(</?)[｜|]+\s*DSML\s*[｜|]+\s*"
_INVOKE: Final = r"(?s)<invoke\s+name=\"([^\"]+)\"\s*>(.*?)</invoke>"
_PARAMETER: Final = (
    r"(?s)<parameter\s+name=\"([^\"]+)\"(?:\s+string=\"(true|false)\")?\s*>(.*?)</parameter>"
)
_FUNCTION: Final = r"(?s)<function=([^>\s]+)>(.*?)</function>"
_FUNCTION_PARAMETER: Final = r"(?s)<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>()"
_ARGUMENT: Final = r"(?s)<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>()"
_DEEPSEEK: Final = (
    r"(?s)<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?\s*([^<\s]+?)\s*(?:<｜tool▁sep｜>|\n)"
    r"\s*(?:```json\s*)?(.*?)(?:\s*```)?\s*<｜tool▁call▁end｜>"
)
_KIMI: Final = (
    r"(?s)<\|tool_call_begin\|>\s*(?:functions\.)?([^<\s]+?)(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>\s*(.*?)\s*<\|tool_call_end\|>"
)


class Leaked(Struct, frozen=True):
    """One call: its name and its arguments as JSON text."""

    name: str
    arguments: str


def read(text: str, types_of: Callable[[str], Mapping[str, str] | None]) -> list[Leaked]:
    """The complete calls in `text`, in order; none when it is not such markup after all.

    `types_of` gives the JSON types of a tool's parameters, `None` for a tool that does not exist:
    where the markup does not say so itself, they decide which values are text.
    """
    text = re.sub(_DSML, r"\1", text)
    found: list[Leaked] = []
    for pattern in (_DEEPSEEK, _KIMI):
        found += [Leaked(name, arguments) for name, arguments in re.findall(pattern, text)]
    for name, body in re.findall(_INVOKE, text):
        parameters = [(key, value, mark) for key, mark, value in re.findall(_PARAMETER, body)]
        found.append(_call(name, parameters, types_of))
    for name, body in re.findall(_FUNCTION, text):
        found.append(_call(name, re.findall(_FUNCTION_PARAMETER, body), types_of))
    if not found and (inner := re.fullmatch(r"\s*<tool_call>(.*)</tool_call>\s*", text, re.DOTALL)):
        found += _inner(inner[1], types_of)
    return found


def _inner(text: str, types_of: Callable[[str], Mapping[str, str] | None]) -> list[Leaked]:
    try:
        value = jsontext.loads(text.strip().encode())
    except jsontext.DecodeError:
        name = text.partition("<arg_key>")[0].strip()
        if not re.fullmatch(r"[\w.\-]+", name):
            return []
        return [_call(name, re.findall(_ARGUMENT, text), types_of)]
    if not isinstance(value, dict):
        return []
    body = cast("dict[str, Any]", value)
    name, arguments = body.get("name"), body.get("arguments", body.get("parameters", {}))
    if not isinstance(name, str):
        return []
    is_text = isinstance(arguments, str)
    return [Leaked(name, arguments if is_text else jsontext.encode(arguments).decode())]


def _call(
    name: str,
    parameters: list[tuple[str, str, str]],
    types_of: Callable[[str], Mapping[str, str] | None],
) -> Leaked:
    types = types_of(name) or {}
    arguments: dict[str, Any] = {}
    for key, value, mark in parameters:
        is_text = mark == "true" if mark else types.get(key, "string") == "string"
        arguments[key] = value if is_text else _value(value)
    return Leaked(name, jsontext.encode(arguments).decode())


def _value(text: str) -> Any:
    try:
        return jsontext.loads(text.encode())
    except jsontext.DecodeError:
        return text
