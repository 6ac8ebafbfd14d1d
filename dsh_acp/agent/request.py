"""The request of each attempt: built, recorded, proved, and only then let go.

Its messages are fixed before any hook runs, so what a hook appends belongs to the next request.
The proof compares the finished request with what independent code reads from the log's own bytes;
when the two differ, nothing leaves.
"""

from typing import Final

from msgspec import Struct

from dsh_acp.agent import hooks
from dsh_acp.agent.hooks import Framing, FramingProposal, Hooks, Live, Proposal
from dsh_acp.agent.options import Options
from dsh_acp.agent.services import Routes
from dsh_acp.errors import LlmError
from dsh_acp.llm.provider import Body, PreparedCall, Provider
from dsh_acp.log import header as headers
from dsh_acp.log.audit import Auditor
from dsh_acp.log.payloads import RequestContext, RequestDigest, RequestHeader
from dsh_acp.log.session_log import SessionLog
from dsh_acp.messages import UNSET, CallConfig, EpochHeader, Message, Raw, Request, ToolSchema

OF_VISION: Final = frozenset({"read_image"})
"""The tools whose results only a model that takes images can use."""


class Prepared(Struct, frozen=True):
    """A request whose header is logged, and who will serve it."""

    request: Request
    provider: Provider


class Requests:
    """Builds the requests of one live session."""

    def __init__(
        self, live: Live, log: SessionLog, routes: Routes, options: Options, chain: Hooks
    ) -> None:
        self._live = live
        self._log = log
        self._routes = routes
        self._options = options
        self._hooks = chain
        self._auditor: Auditor | None = None
        self._all_tools: tuple[ToolSchema, ...] = ()
        self._blind_tools: tuple[ToolSchema, ...] = ()

    async def build(
        self, turn: int, step: int, system: str, tools: tuple[ToolSchema, ...]
    ) -> Prepared:
        """The request for the history as it is now; logs the header and context that are owed.

        Raises:
            LlmError: `NO_ADAPTER`, `MISSING_CREDENTIAL`, `UNSUPPORTED_REASONING_EFFORT`.
        """
        messages = self._log.messages()
        config = await self._config(turn, step)
        provider = self._provider(config)
        call = provider.prepare(config)
        if not provider.model(call.config.model).vision:
            tools = self._without_vision(tools)
        framing = await self._framing(turn, step, system, messages)
        header = _header(call, system, tools, framing)
        self._record(header, call)
        if framing.before or framing.after:
            messages = (*framing.before, *messages, *framing.after)
        return Prepared(Request(self._log.header.id, header, messages), provider)

    async def _config(self, turn: int, step: int) -> CallConfig:
        first = not self._log.header_in_this_life
        if first:
            self._options.route()
        seed = self._options.seed(self._log.request_header(), first)
        if not self._hooks.request_config:
            return seed

        async def default() -> CallConfig:
            return seed

        proposal = Proposal(self._live, turn, step, seed)
        return await hooks.through(self._hooks.request_config, proposal, default)

    def _without_vision(self, tools: tuple[ToolSchema, ...]) -> tuple[ToolSchema, ...]:
        # The same tuple each time: what is unchanged is not encoded again.
        if tools is not self._all_tools:
            self._all_tools = tools
            self._blind_tools = tuple(tool for tool in tools if tool.name not in OF_VISION)
        return self._blind_tools

    def _provider(self, config: CallConfig) -> Provider:
        if not config.provider or not config.model:
            raise LlmError(
                "no model is chosen for this session; choose one, or start with --model "
                "provider/model",
                code="NO_ADAPTER",
            )
        provider = self._routes.get(config.provider)
        if provider is None:
            raise LlmError(
                f'no provider named "{config.provider}" is configured; choose another model or '
                "configure it",
                code="NO_ADAPTER",
            )
        return provider

    async def _framing(
        self, turn: int, step: int, system: str, messages: tuple[Message, ...]
    ) -> Framing:
        if not self._hooks.request_framing:
            return Framing()

        async def default() -> Framing:
            return Framing()

        proposal = FramingProposal(self._live, turn, step, system, messages)
        return await hooks.through(self._hooks.request_framing, proposal, default)

    def _record(self, header: EpochHeader, call: PreparedCall) -> None:
        previous = self._log.request_header()
        if not self._log.header_in_this_life:
            self._log.append(RequestHeader(header, "initial" if previous is None else "resume"))
        elif not headers.equal(previous, header):
            self._log.append(RequestHeader(header, "change"))
        window = UNSET if call.context_window is None else call.context_window
        context = RequestContext(call.config.provider, call.config.model, window)
        if self._log.request_context() != context:
            self._log.append(context)

    async def release(self, prepared: Prepared, turn: int, step: int, attempt: int) -> Body:
        """Prove `prepared`, record the digest of its body, and wait until what it tells is on disk.

        The body is what may be sent; it comes back only when everything in it is durable. The
        digest is with the operating system by then and follows to the disk: it says what left,
        and nobody was told it.

        Raises:
            InvariantError: the request is not what the log explains.
            LlmError: it cannot be expressed, or an attachment is missing or corrupt.
            LogError: the disk refused.
        """
        self.prove(prepared.request)
        body = prepared.provider.body(prepared.request)
        config = prepared.request.config
        told = self._log.handed_over
        self._log.append(
            RequestDigest(
                turn, step, attempt, body.sha256, len(body.data), config.provider, config.model
            )
        )
        await self._log.sync(told)
        return body

    def prove(self, request: Request) -> None:
        """Compare `request` with the log's own bytes; the cost grows with what is new.

        Raises:
            InvariantError: they differ.
        """
        if self._auditor is None:
            self._auditor = Auditor(self._log.header.id)
        self._auditor.feed(self._log.lines(self._auditor.offset))
        self._auditor.check(request)


def _header(
    call: PreparedCall, system: str, tools: tuple[ToolSchema, ...], framing: Framing
) -> EpochHeader:
    return headers.canonical(
        EpochHeader(
            config=call.config,
            adapter_defaults=call.adapter_defaults or UNSET,
            system=system or UNSET,
            tools=tools or UNSET,
            message_prefix=tuple(Raw(message.json) for message in framing.before) or UNSET,
            message_suffix=tuple(Raw(message.json) for message in framing.after) or UNSET,
        )
    )
