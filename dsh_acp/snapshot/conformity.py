"""Every frame of an agent against the protocol's own definitions.

Two independent judges, each used when it is there: the published JSON schema (a folder with
`v1/schema.json` and `v2/schema.json`, checked with `jsonschema`) and, for version 1, the models of
the official Python SDK (`agent-client-protocol`). Neither is needed to run this project, so both
are imported here and only on use.
"""

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
import re
from typing import Any, Final, TypeAlias, cast

from dsh_acp import jsontext
from dsh_acp.snapshot.calls import Line

Json: TypeAlias = dict[str, Any]
SENT_KINDS: Final = ("Request", "Notification")


def schema_folder(near: Path) -> Path | None:
    """The schema folder: `acp-schema` beside a parent of `near`, or in a `shared` folder there."""
    for parent in near.resolve().parents:
        for name in ("acp-schema", "shared/acp-schema"):
            if (parent / name / "v1" / "schema.json").exists():
                return parent / name
    return None


def violations(lines: Iterable[Line], folder: Path | None) -> list[str]:
    """What is wrong with the received frames of one conversation, in words, each once."""
    found: dict[str, None] = {}
    asked: dict[str, str] = {}
    version = 1
    for line in lines:
        try:
            frame = jsontext.loads(line.data)
        except jsontext.DecodeError:
            continue
        if not isinstance(frame, dict):
            continue
        frame = cast(Json, frame)
        if line.sent:
            if "method" in frame and "id" in frame:
                asked[repr(frame["id"])] = str(frame["method"])
            continue
        found.update(dict.fromkeys(_envelope(frame)))
        method = str(frame.get("method") or asked.get(repr(frame.get("id")), ""))
        if method == "initialize" and isinstance(frame.get("result"), dict):
            version = int(frame["result"].get("protocolVersion", 1))
        if "method" in frame:
            kind = "Request" if "id" in frame else "Notification"
            value = frame.get("params", {})
        elif "result" in frame and method:
            kind, value = "Response", frame["result"]
        else:
            continue
        for problem in _verdict(version, method, kind, _typical(value), folder):
            found[f"{method} ({kind.lower()}): {problem}"] = None
    return list(found)


def _envelope(frame: Json) -> list[str]:
    problems: list[str] = []
    if frame.get("jsonrpc") != "2.0":
        problems.append('a frame without "jsonrpc": "2.0"')
    if "method" not in frame and ("result" in frame) == ("error" in frame):
        problems.append("a response needs exactly one of result and error")
    if "method" not in frame and "id" not in frame:
        problems.append("a frame with neither method nor id")
    if unknown := set(frame) - {"jsonrpc", "id", "method", "params", "result", "error"}:
        problems.append(f"unknown fields in a frame: {', '.join(sorted(unknown))}")
    error = frame.get("error")
    if error is not None:
        ok = isinstance(error, dict) and type(cast(Json, error).get("code")) is int
        if not ok or not isinstance(cast(Json, error).get("message"), str):
            problems.append(f"an error without integer code and text: {error!r:.80}")
    return problems


_UUIDS: Final = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PLACES: Final = re.compile(rb"(?<=/acp-snap-)[a-z0-9_]{8}")
_NO_UUID: Final = b"00000000-0000-4000-8000-000000000000"


def _typical(value: Any) -> bytes:
    """A value as text, with one id and one temporary folder instead of each run's own.

    Most frames are alike in most scenarios, and to judge one takes longer than to make it.
    """
    return _PLACES.sub(b"anywhere", _UUIDS.sub(_NO_UUID, jsontext.encode(value)))


@lru_cache(maxsize=4096)
def _verdict(
    version: int, method: str, kind: str, text: bytes, folder: Path | None
) -> tuple[str, ...]:
    return tuple(_judge(version, method, kind, jsontext.loads(text), folder))


def _judge(version: int, method: str, kind: str, value: Any, folder: Path | None) -> Iterable[str]:
    if method.startswith(("_", "$/")):
        return
    if folder is not None and find_spec("jsonschema") is not None:
        validator = _validator(folder, version, method, kind, _update_kind(value))
        if validator is None:
            yield "the protocol has no such method"
            return
        worst = _worst(validator, value)
        if worst is not None:
            yield f"schema: {worst.json_path}: {worst.message:.300}"
    if version == 1 and (model := _model(method, kind)) is not None:
        from pydantic import ValidationError

        try:
            model.model_validate(value)
        except ValidationError as exc:
            first = exc.errors()[0]
            path = ".".join(str(part) for part in first["loc"])
            yield f"SDK: {path}: {first['msg']}"


def _worst(validator: Any, value: Any) -> Any:
    from jsonschema import exceptions

    chosen: Any = exceptions.best_match  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return chosen(validator.iter_errors(value))


@cache
def _definitions(folder: Path, version: int) -> Mapping[tuple[str, str], tuple[str, Json]]:
    """(method, kind) -> name of the definition and the document that holds it."""
    found: dict[tuple[str, str], tuple[str, Json]] = {}
    for name in ("schema.unstable.json", "schema.json"):
        path = folder / f"v{version}" / name
        if not path.exists():
            continue
        document = jsontext.loads(path.read_bytes())
        for definition, body in document["$defs"].items():
            for kind in (*SENT_KINDS, "Response"):
                if "x-method" in body and definition.endswith(kind):
                    found[body["x-method"], kind] = (definition, document)
    return found


def _update_kind(value: Any) -> str:
    update = cast(Json, value).get("update") if isinstance(value, dict) else None
    return str(cast(Json, update).get("sessionUpdate", "")) if isinstance(update, dict) else ""


@cache
def _validator(folder: Path, version: int, method: str, kind: str, update: str) -> Any:
    from jsonschema import Draft202012Validator

    known = _definitions(folder, version).get((method, kind))
    if known is None:
        return None
    name, document = known
    definitions: Json = document["$defs"]
    if method == "session/update":
        # The alternatives are told apart by their kind: the right one alone is quicker, and its
        # faults are the ones to read.
        whole: Json = definitions["SessionUpdate"]
        for one in whole.get("oneOf") or whole.get("anyOf") or ():
            if one.get("properties", {}).get("sessionUpdate", {}).get("const") == update:
                definitions = {**definitions, "SessionUpdate": one}
    return Draft202012Validator({"$ref": f"#/$defs/{name}", "$defs": definitions})


_SDK_NAMES: Final = {
    ("session/update", "Notification"): "SessionNotification",
    ("session/request_permission", "Request"): "RequestPermissionRequest",
    ("fs/read_text_file", "Request"): "ReadTextFileRequest",
    ("fs/write_text_file", "Request"): "WriteTextFileRequest",
    ("terminal/create", "Request"): "CreateTerminalRequest",
    ("terminal/output", "Request"): "TerminalOutputRequest",
    ("terminal/wait_for_exit", "Request"): "WaitForTerminalExitRequest",
    ("terminal/kill", "Request"): "KillTerminalRequest",
    ("terminal/release", "Request"): "ReleaseTerminalRequest",
    ("initialize", "Response"): "InitializeResponse",
    ("authenticate", "Response"): "AuthenticateResponse",
    ("logout", "Response"): "LogoutResponse",
    ("session/new", "Response"): "NewSessionResponse",
    ("session/load", "Response"): "LoadSessionResponse",
    ("session/resume", "Response"): "ResumeSessionResponse",
    ("session/fork", "Response"): "ForkSessionResponse",
    ("session/list", "Response"): "ListSessionsResponse",
    ("session/delete", "Response"): "DeleteSessionResponse",
    ("session/close", "Response"): "CloseSessionResponse",
    ("session/set_mode", "Response"): "SetSessionModeResponse",
    ("session/set_config_option", "Response"): "SetSessionConfigOptionResponse",
    ("session/prompt", "Response"): "PromptResponse",
}


@cache
def _model(method: str, kind: str) -> Any:
    name = _SDK_NAMES.get((method, kind))
    if name is None or find_spec("acp") is None:
        return None
    import acp.schema

    return getattr(acp.schema, name, None)
