"""One conversation with a language server, through pygls.

What pygls leaves open when a server misbehaves is closed here: the process is ours, with its
stderr read; the protocol knows no server-side `exit`, which would end this process; a result that
is no result fails its request, which otherwise would never end; an inner object that looks like a
message is not taken for one; every request has a time limit, and the server is told of requests
that nobody waits for any more; the end is bounded.

Importing this module imports pygls, which takes a third of a second.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
import contextlib
import itertools
import json
import logging
from typing import Any, Final, cast

import anyio
from lsprotocol import types
from pygls import uris
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient
from pygls.protocol import JsonRPCProtocol

from dsh_acp.errors import LspError
from dsh_acp.lsp.place import Limits
from dsh_acp.lsp.process import ServerProcess

# Whatever a server sends wrong is told in our own words, or is nobody's concern.
logging.getLogger("pygls").setLevel(logging.CRITICAL + 1)
_log = logging.getLogger(__name__)

MAX_MESSAGE: Final = 32 * 1024 * 1024
_MAX_HEADER: Final = 65_536
_PIECE: Final = 65_536
_RETRIED: Final = (-32801, -32802)  # the document changed, the server cancelled
_ATTEMPTS: Final = 4


class _Protocol(JsonRPCProtocol):
    """JSON-RPC with the types of LSP, and nothing that a server would do."""

    def get_message_type(self, method: str) -> Any:
        return types.METHOD_TO_TYPES.get(method, (None,))[0]

    def get_result_type(self, method: str) -> Any:
        return types.METHOD_TO_TYPES.get(method, (None, None))[1]

    def structure_message(self, data: dict[str, Any]) -> Any:
        try:
            return super().structure_message(_without_known_nonsense(data))
        except JsonRpcException:
            if "method" not in data:
                self.fail(data.get("id"), LspError("its answer makes no sense", code="MALFORMED"))
            raise

    def _handle_request(self, msg_id: Any, method_name: str, params: Any) -> None:
        # Their ids are not ours, even when they are the same.
        features = cast(dict[str, Callable[[Any], Any]], cast(Any, self.fm).features)
        handler = features.get(method_name)
        if handler is None:
            self.refuse(msg_id, -32601, f"there is no {method_name}")
        else:
            self._send_data({"jsonrpc": "2.0", "id": msg_id, "result": handler(params)})

    def refuse(self, id: Any, code: int, text: str) -> None:
        """Answer a request of the server with an error."""
        error = {"code": code, "message": text}
        self._send_data({"jsonrpc": "2.0", "id": id, "error": error})

    def fail(self, id: Any, error: Exception) -> None:
        """End the request `id` with `error`, if it is still open."""
        future = self._request_futures.pop(id, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def forget(self, id: str) -> None:
        """An answer to this request is nobody's any more."""
        self._request_futures.pop(id, None)
        self._result_types.pop(id, None)

    def fail_all(self, error: Exception) -> None:
        """End every open request."""
        for id in list(self._request_futures):
            self.fail(id, error)


def _without_known_nonsense(data: dict[str, Any]) -> dict[str, Any]:
    result: Any = data.get("result")
    if isinstance(result, dict):
        capabilities: Any = cast(dict[str, Any], result).get("capabilities")
        if isinstance(capabilities, dict):
            # Some servers fill it with what the types do not allow, and nothing here needs it.
            cast(dict[str, Any], capabilities).pop("notebookDocumentSync", None)
    return data


class Client:
    """A server that was started, until `stop`.

    `published` is called with a path, the version that the server speaks of, and its findings.
    """

    def __init__(
        self,
        process: ServerProcess,
        settings: Mapping[str, Any],
        limits: Limits,
        published: Callable[[str, int | None, Sequence[types.Diagnostic]], None],
    ) -> None:
        self._process: Final = process
        self._settings: Final = settings
        self._limits: Final = limits
        self._published: Final = published
        self._client: Final = LanguageClient("dsh-acp", "1", protocol_cls=cast(Any, _Protocol))
        self._protocol: Final = cast(_Protocol, self._client.protocol)
        self._ids: Final = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self._transports: list[asyncio.BaseTransport] = []
        self._writer: asyncio.StreamWriter | None = None
        self._busy: set[int | str] = set()
        self._ended = anyio.Event()
        self.capabilities = types.ServerCapabilities()
        self._listen()

    # ------------------------------------------------------------ life

    async def open(self) -> None:
        """Connect to the pipes. The tasks are ended by `stop`."""
        loop = asyncio.get_running_loop()
        stdin, stdout, stderr = self._process.pipes
        transport, flow = await loop.connect_write_pipe(
            lambda: asyncio.streams.FlowControlMixin(loop=loop), stdin
        )
        self._writer = asyncio.StreamWriter(transport, flow, None, loop)
        self._protocol.set_writer(cast(Any, self._writer))
        for pipe, follow in ((stdout, self._read), (stderr, self._drain)):
            reader, source = await _reader(pipe)
            self._transports.append(source)
            self._tasks.append(asyncio.create_task(follow(reader)))

    async def initialize(self, root: str, options: Any) -> None:
        """Exchange capabilities.

        Raises:
            LspError: the server ended, did not answer in time, or answered nonsense.
        """
        folder = types.WorkspaceFolder(uri=_uri(root), name=root.rpartition("/")[2])
        params = types.InitializeParams(
            capabilities=_capabilities(),
            process_id=None,  # ours means nothing to a server in a process table of its own
            root_uri=_uri(root),
            root_path=root,
            workspace_folders=[folder],
            client_info=types.ClientInfo("dsh-acp"),
            initialization_options=options,
        )
        result = await self.request(types.INITIALIZE, params, self._limits.start_s)
        self.capabilities = cast(types.InitializeResult, result).capabilities
        self.notify(types.INITIALIZED, types.InitializedParams())
        if self._settings:
            self.notify(
                types.WORKSPACE_DID_CHANGE_CONFIGURATION,
                types.DidChangeConfigurationParams(dict(self._settings)),
            )

    @property
    def has_ended(self) -> bool:
        """Whether it can no longer be asked."""
        return self._ended.is_set()

    @property
    def is_busy(self) -> bool:
        """Whether it says that it is still at work, on an index for example."""
        return bool(self._busy)

    async def stop(self) -> None:
        """End the conversation and the process, in bounded time."""
        farewell = 0.0
        with anyio.CancelScope(shield=True):
            if self._writer is not None and not self.has_ended:
                with contextlib.suppress(LspError):
                    await self.request(types.SHUTDOWN, None, self._limits.farewell_s)
                    farewell = 0.5
                self.notify(types.EXIT, None)
            await self._process.stop(farewell)
            self._finish()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._writer is not None and not self._writer.transport.is_closing():
                self._writer.transport.abort()
            for transport in self._transports:
                transport.close()
            # A closed transport gives its descriptor back in the next turn of the loop.
            await anyio.lowlevel.checkpoint()

    def _finish(self) -> None:
        self._ended.set()
        self._protocol.fail_all(LspError(self._process.outcome(), code="ENDED"))

    # ------------------------------------------------------------ talking

    async def request(self, method: str, params: Any, seconds: float | None = None) -> Any:
        """The server's answer, in the types of lsprotocol.

        Cancellation tells the server. An answer that is out of date is asked for again.

        Raises:
            LspError: `ENDED`, `TIMEOUT`, `MALFORMED`, `REFUSED`.
        """
        limit = self._limits.request_s if seconds is None else seconds
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._once(method, params, limit)
            except JsonRpcException as exc:
                if exc.code not in _RETRIED or attempt == _ATTEMPTS:
                    text = f"it refused {method}: {str(exc)[:500]}"
                    raise LspError(text, code="REFUSED") from exc
                await anyio.sleep(0.1 * attempt)
        raise AssertionError("unreachable")

    async def _once(self, method: str, params: Any, seconds: float) -> Any:
        if self.has_ended:
            raise LspError(self._process.outcome(), code="ENDED")
        writer = self._writer
        assert writer is not None
        if writer.transport.get_write_buffer_size() > MAX_MESSAGE:
            raise LspError("it reads nothing of what it is sent", code="TIMEOUT")
        # Ids of its own requests must never look like ours.
        id = f"dsh-{next(self._ids)}"
        is_answered = False
        try:
            with anyio.fail_after(seconds):
                result = await self._protocol.send_request_async(method, params, msg_id=id)
            is_answered = True
        except TimeoutError as exc:
            text = f"it did not answer {method} within {seconds:g} s"
            raise LspError(text, code="TIMEOUT") from exc
        except (JsonRpcException, LspError):
            is_answered = True
            raise
        finally:
            self._protocol.forget(id)
            if not is_answered and not self.has_ended:
                self.notify(types.CANCEL_REQUEST, types.CancelParams(id=id))
        return result

    def notify(self, method: str, params: Any) -> None:
        """Tell the server something; never waits, never fails."""
        if not self.has_ended:
            try:
                self._protocol.notify(method, params)
            except (OSError, RuntimeError) as exc:
                _log.debug("a language server takes nothing any more: %s", exc)

    # ------------------------------------------------------------ listening

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                length = await _content_length(reader)
                message: Any = json.loads(await reader.readexactly(length))
                if isinstance(message, dict):
                    self._take(cast(dict[str, Any], message))
        except (asyncio.IncompleteReadError, OSError, ValueError, RecursionError) as exc:
            # The end of its output, or output after which nothing can be understood.
            _log.debug("a language server's output ended: %s", exc)
        finally:
            with anyio.CancelScope(shield=True):
                await self._process.ends_within(0.2)
            self._finish()

    def _take(self, message: dict[str, Any]) -> None:
        try:
            self._protocol.handle_message(self._protocol.structure_message(message))
        except Exception as exc:  # noqa: BLE001 - the border: one bad message ends nothing
            _log.debug("a language server sent nonsense: %s", exc)
            if "id" in message and "method" in message:
                self._protocol.refuse(message["id"], -32602, "that makes no sense")

    async def _drain(self, reader: asyncio.StreamReader) -> None:
        while data := await reader.read(_PIECE):
            self._process.complain(data)

    def _listen(self) -> None:
        """What a server may ask of us: little, and nothing that changes anything."""
        on = self._client.feature

        def published(params: types.PublishDiagnosticsParams) -> None:
            path = uris.to_fs_path(params.uri)
            if path is not None:
                self._published(path, params.version, params.diagnostics)

        def configuration(params: types.ConfigurationParams) -> list[Any]:
            return [_section(self._settings, item.section) for item in params.items]

        def progress(params: types.ProgressParams) -> None:
            value: Any = params.value
            told = cast(dict[str, Any], value) if isinstance(value, dict) else {}
            kind = told.get("kind") or cast(Any, getattr(cast(object, value), "kind", None))
            if kind == "begin":
                self._busy.add(params.token)
            elif kind == "end":
                self._busy.discard(params.token)

        def refused(params: Any) -> Any:
            return types.ApplyWorkspaceEditResult(applied=False)

        def nothing(params: Any) -> None:
            return None

        on(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(published)
        on(types.WORKSPACE_CONFIGURATION)(configuration)
        on(types.PROGRESS)(progress)
        on(types.WORKSPACE_APPLY_EDIT)(refused)
        for method in (
            types.CLIENT_REGISTER_CAPABILITY,
            types.CLIENT_UNREGISTER_CAPABILITY,
            types.WINDOW_WORK_DONE_PROGRESS_CREATE,
            types.WINDOW_SHOW_MESSAGE_REQUEST,
            types.WORKSPACE_WORKSPACE_FOLDERS,
            types.WORKSPACE_DIAGNOSTIC_REFRESH,
        ):
            on(method)(nothing)


async def _reader(pipe: Any) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    reader = asyncio.StreamReader(limit=_MAX_HEADER)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    return reader, transport


async def _content_length(reader: asyncio.StreamReader) -> int:
    """The length that the next header tells; other lines are passed over.

    Raises:
        ValueError: the header cannot be used.
        IncompleteReadError: there is none.
    """
    length: int | None = None
    while True:
        line = await reader.readline()
        if not line:
            raise asyncio.IncompleteReadError(b"", None)
        name, colon, value = line.partition(b":")
        if colon and name.strip().lower() == b"content-length":
            length = int(value)
            if not 0 <= length <= MAX_MESSAGE:
                raise ValueError(f"a message of {length} bytes")
        elif not line.strip() and length is not None:
            return length


def _uri(path: str) -> str:
    return cast(str, uris.from_fs_path(path))


def _section(settings: Mapping[str, Any], section: str | None) -> Any:
    found: Any = settings
    for part in (section or "").split("."):
        if part:
            found = cast(Mapping[str, Any], found).get(part) if isinstance(found, dict) else None
    return found if found else None


def _capabilities() -> types.ClientCapabilities:
    markup = [types.MarkupKind.Markdown, types.MarkupKind.PlainText]
    return types.ClientCapabilities(
        general=types.GeneralClientCapabilities(
            position_encodings=[types.PositionEncodingKind.Utf16]
        ),
        window=types.WindowClientCapabilities(work_done_progress=True),
        workspace=types.WorkspaceClientCapabilities(configuration=True, workspace_folders=True),
        text_document=types.TextDocumentClientCapabilities(
            synchronization=types.TextDocumentSyncClientCapabilities(did_save=True),
            definition=types.DefinitionClientCapabilities(link_support=True),
            implementation=types.ImplementationClientCapabilities(link_support=True),
            references=types.ReferenceClientCapabilities(),
            hover=types.HoverClientCapabilities(content_format=markup),
            document_symbol=types.DocumentSymbolClientCapabilities(
                hierarchical_document_symbol_support=True
            ),
            publish_diagnostics=types.PublishDiagnosticsClientCapabilities(version_support=True),
        ),
    )
