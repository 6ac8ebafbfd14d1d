"""The one-shot call that writes a checkpoint.

It uses the conversation's model, system prompt and tools, so that the provider's cache serves the
part to be summarised. Its chunks are not logged; what it was and what came of it is.
"""

from collections.abc import Sequence
from typing import Final

import anyio
from msgspec import Struct

from dsh_acp.agent import summary
from dsh_acp.agent.options import Options
from dsh_acp.agent.services import Routes
from dsh_acp.errors import DshError, LlmError
from dsh_acp.llm.assemble import Assembler
from dsh_acp.llm.provider import Provider
from dsh_acp.log.session_log import SessionLog
from dsh_acp.log.token_meter import price_header, price_message
from dsh_acp.messages import (
    CallConfig,
    EpochHeader,
    KnownBlock,
    Message,
    Request,
    Text,
    Usage,
)

MAX_TOKENS: Final = 8192
_SMALLEST: Final = 500
"""Tokens of history below which a request is not made smaller any more."""

_SYSTEM: Final = "You write checkpoints of conversations between a user and a coding agent."


class Summarised(Struct, frozen=True):
    """A checkpoint's text, everything the model said, and by which model."""

    texts: tuple[Text, ...]
    blocks: tuple[KnownBlock, ...]
    config: CallConfig
    usage: Usage | None


class Summariser:
    """Writes checkpoints for one session."""

    def __init__(self, log: SessionLog, routes: Routes, options: Options) -> None:
        self._log = log
        self._routes = routes
        self._options = options

    async def summarise(self, messages: Sequence[Message], focus: str = "") -> Summarised:
        """A checkpoint of `messages`; a request that is too long is tried again smaller.

        Raises:
            LlmError: the model failed, or cannot take even the smallest request.
            DshError: `SUMMARY`, the answer is not a checkpoint.
        """
        provider, header = self._envelope()
        ask = summary.instruction(focus)
        overhead = price_header(header) + price_message(ask)
        limit = self._room(provider, header, overhead)
        total = sum(map(price_message, messages))
        while True:
            fitted = summary.fitted(messages, limit, price_message)
            if len(fitted) != len(messages) or limit < total:
                header = EpochHeader(config=header.config, system=_SYSTEM)
            request = Request(self._log.header.id, header, (*fitted, ask), purpose="compaction")
            try:
                return await self._call(provider, request)
            except LlmError as exc:
                limit = min(limit, total) // 2
                if exc.code != "CONTEXT_WINDOW_EXCEEDED" or limit < _SMALLEST:
                    raise

    def _envelope(self) -> tuple[Provider, EpochHeader]:
        logged = self._log.request_header()
        provider = self._routes.get(logged.config.provider) if logged is not None else None
        if logged is None or provider is None:
            provider, model = self._options.route()
            config = CallConfig(provider=provider.name, model=model, max_tokens=MAX_TOKENS)
            return provider, EpochHeader(config=provider.prepare(config).config)
        info = provider.model(logged.config.model)
        ceiling = min(MAX_TOKENS, info.max_output or MAX_TOKENS)
        if info.context_window:
            ceiling = min(ceiling, max(256, info.context_window // 4))
        config = CallConfig(
            provider=logged.config.provider,
            model=logged.config.model,
            reasoning_effort=logged.config.reasoning_effort,
            temperature=logged.config.temperature,
            max_tokens=ceiling,
        )
        return provider, EpochHeader(config=config, system=logged.system, tools=logged.tools)

    def _room(self, provider: Provider, header: EpochHeader, overhead: int) -> int:
        """Tokens of history that a summarising request can carry."""
        window = provider.model(header.config.model).context_window
        if not window:
            return 2**53
        room = window - (header.config.max_tokens or MAX_TOKENS) - overhead
        # The estimate is a heuristic; a twentieth of the window absorbs its error.
        return max(_SMALLEST, room - window // 20)

    async def _call(self, provider: Provider, request: Request) -> Summarised:
        assembler = Assembler()
        stream = provider.stream(request, provider.body(request))
        try:
            async for batch in stream:
                for chunk in batch:
                    assembler.feed(chunk)
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                with anyio.CancelScope(shield=True):
                    await close()
        finish = assembler.finish
        if finish.kind in ("error", "aborted"):
            failure = finish.failure
            raise LlmError(
                failure.message if failure else "the summarising request failed",
                code=failure.code if failure else "UNKNOWN",
            )
        if finish.kind == "max-tokens":
            raise DshError(
                "summarization truncated at the token cap (incomplete checkpoint)",
                code="MAX_TOKENS",
            )
        blocks = assembler.blocks()
        texts = tuple(block for block in blocks if isinstance(block, Text))
        if not any(text.text.strip() for text in texts):
            raise DshError("summarization produced no text summary content", code="SUMMARY")
        return Summarised(texts, blocks, request.config, assembler.usage)
