"""The tools as the model sees them: static text, so that building a request imports no pydantic.

`python -m dsh_acp.tools.schemas` writes `schemas.json` anew from the models in `arguments`.
"""

from functools import cache
import inspect
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from msgspec import Raw, Struct

from dsh_acp.messages import ToolSchema

FILE: Final = Path(__file__).with_name("schemas.json")


class _Escalation(Struct, frozen=True):
    description: str
    properties: dict[str, Any]


class _Entry(Struct, frozen=True):
    description: str
    parameters: Raw
    escalation: _Escalation | None = None


@cache
def _entries() -> dict[str, _Entry]:
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, _Entry])


@cache
def load() -> dict[str, ToolSchema]:
    """Every built-in tool, in the order in which a request lists them."""
    return {
        # Compact, because these bytes are sent as they are with every request.
        name: ToolSchema(name, entry.description, Raw(_compact(entry.parameters)))
        for name, entry in sorted(_entries().items())
    }


@cache
def escalating(name: str) -> ToolSchema:
    """A tool whose calls may ask for more than their sandbox allows."""
    entry = _entries()[name]
    assert entry.escalation is not None
    parameters = msgspec.json.decode(entry.parameters)
    parameters["properties"] |= entry.escalation.properties
    text = f"{entry.description}\n\n{entry.escalation.description}"
    return ToolSchema(name, text, Raw(msgspec.json.encode(parameters)))


def _compact(text: Raw) -> bytes:
    return msgspec.json.format(bytes(text), indent=-1)


def generate() -> bytes:
    """What `schemas.json` must hold."""
    from dsh_acp.tools.arguments import MODELS, Bash, Escalation

    entries: dict[str, Any] = {}
    for name, model in MODELS.items():
        schema = model.model_json_schema()
        entries[name] = {
            "description": _unwrapped(inspect.cleandoc(model.__doc__ or "")),
            "parameters": _plain(schema, cast(dict[str, Any], schema.get("$defs", {}))),
        }
        if issubclass(model, Bash):
            more = Escalation.model_json_schema()
            entries[name]["escalation"] = {
                "description": _unwrapped(inspect.cleandoc(Escalation.__doc__ or "")),
                "properties": _plain(more, {})["properties"],
            }
    return msgspec.json.format(msgspec.json.encode(entries), indent=2) + b"\n"


def _unwrapped(text: str) -> str:
    return "\n\n".join(" ".join(part.split("\n")) for part in text.split("\n\n"))


def _plain(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The dialect that models know: no references, titles, defaults or unions with null."""
    if "$ref" in schema:
        target = cast(str, schema["$ref"]).rpartition("/")[2]
        return _plain({**definitions[target], **_annotations(schema)}, definitions)
    branches = [branch for branch in schema.get("anyOf", ()) if branch.get("type") != "null"]
    if len(branches) == 1:
        return _plain({**branches[0], **_annotations(schema)}, definitions)
    plain: dict[str, Any] = {}
    if "type" in schema:
        plain["type"] = schema["type"]
    # The text of a model's docstring is for people here; properties describe themselves.
    if "description" in schema and schema.get("type") != "object":
        plain["description"] = schema["description"]
    if "enum" in schema:
        plain["enum"] = schema["enum"]
    if "items" in schema:
        plain["items"] = _plain(schema["items"], definitions)
    if schema.get("type") == "object":
        properties = cast(dict[str, dict[str, Any]], schema.get("properties", {}))
        plain["properties"] = {
            key: _plain(value, definitions) for key, value in properties.items() if value
        }
        if "required" in schema:
            plain["required"] = schema["required"]
        if "additionalProperties" in schema:
            plain["additionalProperties"] = schema["additionalProperties"]
    return plain


def _annotations(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key == "description"}


if __name__ == "__main__":
    FILE.write_bytes(generate())
