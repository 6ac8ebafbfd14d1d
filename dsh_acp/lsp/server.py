"""One running language server in one workspace: its documents, its findings, its answers.

Documents are what the model reads: text that an editor has not saved included. They are sent anew
before each question, if they changed, and so are others that are open and changed on disk.
"""

from collections.abc import Awaitable, Callable, Sequence
import os
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import anyio
from lsprotocol import types
from msgspec import Struct
from pygls import uris

from dsh_acp.errors import LspError
from dsh_acp.lsp.client import Client
from dsh_acp.lsp.findings import Finding, Hover, Place, Symbol
from dsh_acp.lsp.place import Limits
from dsh_acp.lsp.servers import Found
from dsh_acp.lsp.translation import findings, hover_text, outline, places, symbols

OPEN: Final = 64
_PATIENCE_S: Final = 20.0
_PAUSE_S: Final = 0.25
_SETTLED_S: Final = 0.15
_LOOK_AROUND_S: Final = 0.5
_SEVERAL_TIMEOUTS: Final = 2

Read = Callable[[str], Awaitable[str]]
"""The current text of a file, as the model would read it; raises what it likes."""

T = TypeVar("T")


class _Document(Struct):
    version: int
    text: str
    stamp: tuple[int, int] | None
    findings: list[Finding] | None = None
    told_version: int | None = None


class Server:
    """Made by the pool, which also ends it."""

    def __init__(self, found: Found, root: str, limits: Limits) -> None:
        self.found: Final = found
        self.root: Final = root
        self._limits: Final = limits
        self._documents: dict[str, _Document] = {}
        self._news = anyio.Event()
        self._timeouts = 0
        self._knows_workspace = False
        self._turn: Final = anyio.Lock()
        self.client: Client

    @property
    def name(self) -> str:
        """What people call it."""
        return self.found.known.name

    @property
    def has_ended(self) -> bool:
        """Whether it must be started anew: it is gone, or stopped answering."""
        return self.client.has_ended or self._timeouts >= _SEVERAL_TIMEOUTS

    # ------------------------------------------------------------ documents

    def published(self, path: str, version: int | None, found: Sequence[types.Diagnostic]) -> None:
        """The server's findings about a file."""
        document = self._documents.get(path) or self._documents.get(os.path.realpath(path))
        if document is None:
            return
        document.findings = findings(path, found)
        document.told_version = document.version if version is None else version
        news, self._news = self._news, anyio.Event()
        news.set()

    async def sync(self, path: str, read: Read) -> None:
        """Have the server know the current text of `path`, and of what else is open."""
        text = await read(path)
        for other, document in list(self._documents.items()):
            if other != path and _stamp(other) != document.stamp:
                await self._refresh(other, read)
        self._tell(path, text)

    async def _refresh(self, path: str, read: Read) -> None:
        try:
            text = await read(path)
        except Exception:  # noqa: BLE001 - whatever it is, the file is nothing to ask about now
            self._close(path)
        else:
            self._tell(path, text)

    def _tell(self, path: str, text: str) -> None:
        uri = _uri(path)
        document = self._documents.pop(path, None)
        if document is None:
            if len(self._documents) >= OPEN:
                self._close(next(iter(self._documents)))
            document = _Document(1, text, _stamp(path))
            item = types.TextDocumentItem(uri, self.found.language(path), 1, text)
            self._say(types.TEXT_DOCUMENT_DID_OPEN, types.DidOpenTextDocumentParams(item))
        elif document.text != text:
            document.version += 1
            document.text = text
            change = types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(document.version, uri),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
            self._say(types.TEXT_DOCUMENT_DID_CHANGE, change)
            self._say(
                types.TEXT_DOCUMENT_DID_SAVE,
                types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)),
            )
        document.stamp = _stamp(path)
        # The one used last is the last to be closed.
        self._documents[path] = document

    def _close(self, path: str) -> None:
        if self._documents.pop(path, None) is not None:
            closed = types.DidCloseTextDocumentParams(types.TextDocumentIdentifier(_uri(path)))
            self._say(types.TEXT_DOCUMENT_DID_CLOSE, closed)

    def _say(self, method: str, params: Any) -> None:
        self.client.notify(method, params)

    # ------------------------------------------------------------ findings

    async def check(self, path: str, read: Read, seconds: float) -> tuple[list[Finding], bool]:
        """The findings about `path`, and whether they are about its current text.

        Waits for them at most `seconds`.
        """
        async with self._turn:
            with anyio.move_on_after(seconds):
                await self.sync(path, read)
                while not self._is_told(path) and not self.client.has_ended:
                    await self._news.wait()
                # Servers first send what they know at once, then the rest.
                while True:
                    news = self._news
                    with anyio.move_on_after(_SETTLED_S) as quiet:
                        await news.wait()
                    if quiet.cancelled_caught and not self.client.is_busy:
                        break
        document = self._documents.get(path)
        known = [] if document is None or document.findings is None else document.findings
        return known, self._is_told(path)

    def _is_told(self, path: str) -> bool:
        document = self._documents.get(path)
        told = None if document is None else document.told_version
        return document is not None and told is not None and told >= document.version

    # ------------------------------------------------------------ questions

    async def locations(
        self, operation: str, path: str, line: int, character: int, read: Read
    ) -> list[Place]:
        """Where `goToDefinition`, `goToImplementation` or `findReferences` lead. From 1.

        Raises:
            LspError: it cannot be asked that, or does not answer.
        """
        capability, method = _LOCATING[operation]
        self._require(capability, operation)
        at = _position(path, line, character)
        params: Any
        if operation == "findReferences":
            params = types.ReferenceParams(types.ReferenceContext(True), *at)
        elif operation == "goToDefinition":
            params = types.DefinitionParams(*at)
        else:
            params = types.ImplementationParams(*at)
        return await self._patiently(method, params, path, read, places)

    async def hover(self, path: str, line: int, character: int, read: Read) -> Hover | None:
        """What is known of the place; `None` when nothing is."""
        self._require("hover_provider", "hover")
        params = types.HoverParams(*_position(path, line, character))
        return await self._patiently(types.TEXT_DOCUMENT_HOVER, params, path, read, hover_text)

    async def outline(self, path: str, read: Read) -> list[Symbol]:
        """What the file defines, in the server's order."""
        self._require("document_symbol_provider", "documentSymbol")
        params = types.DocumentSymbolParams(types.TextDocumentIdentifier(_uri(path)))
        method = types.TEXT_DOCUMENT_DOCUMENT_SYMBOL
        return await self._patiently(method, params, path, read, lambda r: outline(path, r))

    async def symbols(self, query: str, path: str, read: Read) -> list[Symbol]:
        """What the workspace defines under a name like `query`."""
        self._require("workspace_symbol_provider", "workspaceSymbol")
        params = types.WorkspaceSymbolParams(query)
        return await self._patiently(types.WORKSPACE_SYMBOL, params, path, read, symbols)

    def _require(self, capability: str, operation: str) -> None:
        if not getattr(self.client.capabilities, capability, None):
            raise LspError(f"it does not offer {operation}", code="UNSUPPORTED")

    async def _patiently(
        self, method: str, params: Any, path: str, read: Read, translate: Callable[[Any], T]
    ) -> T:
        """Ask; while there is nothing and the server is still at work, ask again.

        A server that has just started may not have looked at the whole workspace, and tells
        nobody. What it says of all files counts once it says the same twice.
        """
        async with self._turn:
            await self.sync(path, read)
            until = anyio.current_time() + _PATIENCE_S
            is_settled = self._knows_workspace or method not in _WIDE
            before: T | None = None
            while True:
                answer = translate(await self._counted(method, params))
                if anyio.current_time() > until:
                    return answer
                if not self.client.is_busy or answer:
                    if is_settled or (answer == before and not self.client.is_busy):
                        self._knows_workspace = self._knows_workspace or method in _WIDE
                        return answer
                    before = answer
                await anyio.sleep(_PAUSE_S if is_settled else _LOOK_AROUND_S)

    async def _counted(self, method: str, params: Any) -> Any:
        try:
            answer = await self.client.request(method, params)
        except LspError as exc:
            self._timeouts = self._timeouts + 1 if exc.code == "TIMEOUT" else 0
            raise
        self._timeouts = 0
        return answer


_WIDE: Final = (
    types.TEXT_DOCUMENT_REFERENCES,
    types.TEXT_DOCUMENT_IMPLEMENTATION,
    types.WORKSPACE_SYMBOL,
)
_LOCATING: Final = {
    "goToDefinition": ("definition_provider", types.TEXT_DOCUMENT_DEFINITION),
    "goToImplementation": ("implementation_provider", types.TEXT_DOCUMENT_IMPLEMENTATION),
    "findReferences": ("references_provider", types.TEXT_DOCUMENT_REFERENCES),
}


def _uri(path: str) -> str:
    return cast(str, uris.from_fs_path(path))


def _position(
    path: str, line: int, character: int
) -> tuple[types.TextDocumentIdentifier, types.Position]:
    # Both count UTF-16 units; a server counts from 0.
    return types.TextDocumentIdentifier(_uri(path)), types.Position(line - 1, character - 1)


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
