"""A recorded log as the model: no key, no network, the same answers every time.

Model output is replayed, everything else really happens again. Each session that calls claims the
next script: the log itself, then its siblings (`NAME.1.jsonl`, …) in order of creation. Chunks
come one by one, and a cancel is seen before each.
"""

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
from anyio.lowlevel import checkpoint
import msgspec

from dsh_acp import jsontext
from dsh_acp.config import ProviderSettings
from dsh_acp.errors import LlmError
from dsh_acp.llm.bodies import Bodies
from dsh_acp.llm.chat_body import ChatFormat, ChatKey
from dsh_acp.llm.dialects import DIALECTS, dialect_of
from dsh_acp.llm.endpoint import failure_of
from dsh_acp.llm.media import Media
from dsh_acp.llm.models import Models
from dsh_acp.llm.openai import prepared
from dsh_acp.llm.provider import Body, ModelInfo, PreparedCall, RetryPolicy
from dsh_acp.llm.replay_script import Entry, Script, filled, overridden, parse, strings
from dsh_acp.messages import (
    CallConfig,
    Chunk,
    Failure,
    Finish,
    FinishReason,
    Request,
    TextDelta,
)

PREFIX: Final = "replay:"
_OVERRIDE: Final = "?override="


def read(spec: str) -> list[Script]:
    """The scripts that `replay:FILE[?override=FILE]` names, the primary one first.

    Raises:
        LlmError: a file cannot be read, or is no log or no override.
    """
    name, _, override = spec.removeprefix(PREFIX).partition(_OVERRIDE)
    path = Path(name)
    try:
        primary = parse(path.read_bytes())
        if override:
            primary = overridden(primary, Path(override).read_bytes(), override)
        siblings = sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))
        children = [parse(p.read_bytes()) for p in siblings if p.stem.rpartition(".")[2].isdigit()]
    except OSError as exc:
        text = f"the recorded log {exc.filename or name} cannot be read: {exc.strerror}"
        raise LlmError(text, code="NO_ADAPTER") from exc
    return [primary, *sorted(children, key=lambda script: script.order)]


class _Cursor:
    def __init__(self, script: Script) -> None:
        self.script: Final = script
        self.used = 0


class ReplayProvider:
    """The scripts of one recording.

    It goes by the name of the provider that was recorded, so that what is logged again is the
    same; its bodies are those that this provider would get.
    """

    def __init__(self, scripts: Sequence[Script], media: Media | None = None) -> None:
        self.name = scripts[0].provider or "replay"
        self.default_model: Final = scripts[0].model or "replay"
        self.retry = RetryPolicy()
        vendor = self.name if self.name in DIALECTS else "deepseek"
        dialect = dialect_of(vendor)
        settings = ProviderSettings(name=self.name)
        self._models = Models(settings, vendor, dialect.default_efforts, dialect.default_effort)
        self._bodies: Bodies[ChatKey] = Bodies(ChatFormat(self.name, dialect, self.model, media))
        self._unbound = [_Cursor(script) for script in scripts]
        self._count = len(scripts)
        self._bound: dict[str, _Cursor] = {}

    def model(self, model: str) -> ModelInfo:
        return self._models.get(model)

    def models(self) -> Sequence[ModelInfo]:
        known = self._models.all()
        if all(info.id != self.default_model for info in known):
            return (self.model(self.default_model), *known)
        return known

    async def discover(self) -> Sequence[ModelInfo]:
        return self.models()

    def prepare(self, config: CallConfig) -> PreparedCall:
        return prepared(self.name, self.model(config.model), config)

    def body(self, request: Request) -> Body:
        return self._bodies.body(request)

    def stream(self, request: Request, body: Body) -> AsyncGenerator[Sequence[Chunk]]:
        """Claim the session's next call now, and replay it when iterated."""
        try:
            entry = self._claim(request)
        except LlmError as error:
            return _failed(failure_of(error))
        return _replay(entry)

    async def warm(self) -> None:
        return

    async def aclose(self) -> None:
        return

    def assert_consumed(self) -> None:
        """Check that the whole recording was used.

        Raises:
            LlmError: a script that no session claimed, or calls that were never made.
        """
        rest = [f"script #{self._count - len(self._unbound) + 1} was never used"] * bool(
            self._unbound
        )
        rest += [
            f"session {session} made {cursor.used} of {len(cursor.script.entries)} calls"
            for session, cursor in self._bound.items()
            if cursor.used < len(cursor.script.entries)
        ]
        if rest:
            raise LlmError(f"llm-replay: not consumed: {'; '.join(rest)}", code="UNKNOWN")

    def _claim(self, request: Request) -> Entry:
        if request.purpose == "session-title":
            # Titles are asked for whenever there is time; a script has no place for that.
            raise LlmError("llm-replay: a recording answers no title requests", code="NO_ADAPTER")
        session = request.session_id
        cursor = self._bound.get(session)
        if cursor is None:
            if not self._unbound:
                raise LlmError(
                    f"llm-replay: a model call arrived from an unrecorded session "
                    f"(#{len(self._bound) + 1}); the scenario recorded only {self._count} "
                    "session(s) — re-record it",
                    code="UNKNOWN",
                )
            cursor = self._bound[session] = self._unbound.pop(0)
        entries = cursor.script.entries
        cursor.used += 1
        if cursor.used > len(entries):
            raise LlmError(
                f"llm-replay: script exhausted — session requested model call #{cursor.used} but "
                f"its script has only {len(entries)}; re-record the scenario",
                code="UNKNOWN",
            )
        entry = entries[cursor.used - 1]
        if entry.problem:
            raise LlmError(entry.problem, code="UNKNOWN")
        return _placed(entry, request)


def _placed(entry: Entry, request: Request) -> Entry:
    text = jsontext.encode(entry)
    if b"{{fromRequest:" not in text:
        return entry
    leaves = [leaf for item in request.messages for leaf in strings(jsontext.loads(item.json))]
    return msgspec.convert(filled(jsontext.loads(text), leaves), Entry)


async def _failed(failure: Failure) -> AsyncGenerator[Sequence[Chunk]]:
    yield [Finish(FinishReason("error", failure))]


_decoder: Final[msgspec.json.Decoder[Chunk]] = msgspec.json.Decoder(Chunk)


def _chunk(value: Any) -> Chunk:
    # By way of text, because a replay state is kept as the text it was.
    return _decoder.decode(jsontext.encode(value))


async def _replay(entry: Entry) -> AsyncGenerator[Sequence[Chunk]]:
    chunks: Sequence[Any] = entry.chunks
    if entry.kind == "hang":
        chunks = ({"type": "block-start", "index": 0, "blockType": "text"},)
    for value in chunks:
        await checkpoint()
        try:
            chunk = _chunk(value)
        except msgspec.ValidationError as exc:
            failure = Failure(message=f"llm-replay: not a chunk: {exc}", code="UNKNOWN")
            yield [Finish(FinishReason("error", failure))]
            return
        yield [chunk]
        if isinstance(chunk, Finish):
            return
    await checkpoint()
    if entry.kind == "hang":
        yield [TextDelta(0, "partial")]
        if entry.ready_file is not None:
            await anyio.Path(entry.ready_file).write_text("", encoding="utf-8")
        await anyio.sleep_forever()
    kind = "aborted" if entry.code == "ABORTED" else "error"
    failure = Failure(message=entry.message, code=entry.code or "UNKNOWN")
    yield [Finish(FinishReason(kind, failure))]
