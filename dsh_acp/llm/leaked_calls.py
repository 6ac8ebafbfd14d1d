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

_DSML: Final = re.compile(r"(</?)[｜|]+\s*DSML\s*[｜|]+\s*")
_INVOKE: Final = re.compile(r"<invoke\s+name=\"([^\"]+)\"\s*>(.*?)</invoke>", re.DOTALL)
_PARAMETER: Final = re.compile(
    r"<parameter\s+name=\"([^\"]+)\"(?:\s+string=\"(true|false)\")?\s*>(.*?)</parameter>", re.DOTALL
)
_FUNCTION: Final = re.compile(r"<function=([^>\s]+)>(.*?)</function>", re.DOTALL)
_FUNCTION_PARAMETER: Final = re.compile(
    r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>()", re.DOTALL
)
_ARGUMENT: Final = re.compile(
    r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>()", re.DOTALL
)
_DEEPSEEK: Final = re.compile(
    r"<｜tool▁call▁begin｜>(?:function<｜tool▁sep｜>)?\s*([^<\s]+?)\s*(?:<｜tool▁sep｜>|\n)"
    r"\s*(?:```json\s*)?(.*?)(?:\s*```)?\s*<｜tool▁call▁end｜>",
    re.DOTALL,
)
_KIMI: Final = re.compile(
    r"<\|tool_call_begin\|>\s*(?:functions\.)?([^<\s]+?)(?::\d+)?\s*"
    r"<\|tool_call_argument_begin\|>\s*(.*?)\s*<\|tool_call_end\|>",
    re.DOTALL,
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
    text = _DSML.sub(r"\1", text)
    found: list[Leaked] = []
    for pattern in (_DEEPSEEK, _KIMI):
        found += [Leaked(name, arguments) for name, arguments in pattern.findall(text)]
    for name, body in _INVOKE.findall(text):
        parameters = [(key, value, mark) for key, mark, value in _PARAMETER.findall(body)]
        found.append(_call(name, parameters, types_of))
    for name, body in _FUNCTION.findall(text):
        found.append(_call(name, _FUNCTION_PARAMETER.findall(body), types_of))
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
        return [_call(name, _ARGUMENT.findall(text), types_of)]
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
