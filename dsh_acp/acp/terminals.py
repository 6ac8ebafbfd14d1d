"""Commands in the client's own terminals, for clients that offer them and users who ask for it."""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import anyio
import msgspec
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.tools.tool import CommandEnd
from dsh_acp.wire.frames import RpcError

_OUTPUT_LIMIT: Final = 1 << 20
_RELEASE_SECONDS: Final = 2


class _Created(Struct, frozen=True, rename="camel"):
    terminal_id: str


class _ExitStatus(Struct, frozen=True, rename="camel"):
    exit_code: int | None = None
    signal: str | None = None


class _Output(Struct, frozen=True, rename="camel"):
    output: str = ""
    truncated: bool = False
    exit_status: _ExitStatus | None = None


_created: Final = msgspec.json.Decoder(_Created)
_exits: Final = msgspec.json.Decoder(_ExitStatus)
_outputs: Final = msgspec.json.Decoder(_Output)

Ask = Callable[[str, Any], Awaitable[bytes]]
Attach = Callable[[str, str], None]


class ClientTerminals:
    """The terminals of one session. `attach`, once set, shows one in the card of a call."""

    def __init__(self, session_id: str, ask: Ask) -> None:
        self.attach: Attach | None = None
        self._session_id: Final = session_id
        self._ask: Final = ask

    async def run(
        self,
        command: str,
        *,
        call_id: str,
        cwd: str,
        timeout_ms: int,
        env: Mapping[str, str] | None,
    ) -> CommandEnd | None:
        """Run `command`; `None` when the client makes no terminal, so that it runs elsewhere.

        The terminal is released in any case, which ends a command that still runs.
        """
        params = {
            "command": "bash",
            "args": ["-c", command],
            "env": [{"name": name, "value": value} for name, value in (env or {}).items()],
            "cwd": cwd,
            "outputByteLimit": _OUTPUT_LIMIT,
        }
        try:
            raw = await self._call("create", params)
            terminal_id = jsontext.decode(raw, _created).terminal_id
        except (RpcError, ValueError):
            return None
        of_terminal = {"terminalId": terminal_id}
        if self.attach is not None:
            self.attach(call_id, terminal_id)
        try:
            return await self._follow(of_terminal, timeout_ms)
        finally:
            with anyio.move_on_after(_RELEASE_SECONDS, shield=True), suppress(RpcError):
                await self._call("release", of_terminal)

    async def _follow(self, of_terminal: dict[str, Any], timeout_ms: int) -> CommandEnd:
        status: _ExitStatus | None = None
        with anyio.move_on_after(timeout_ms / 1000) as limit:
            with suppress(RpcError, ValueError):
                raw = await self._call("wait_for_exit", of_terminal)
                status = jsontext.decode(raw, _exits)
        if limit.cancelled_caught:
            with suppress(RpcError):
                await self._call("kill", of_terminal)
        output = _Output()
        with suppress(RpcError, ValueError):
            output = jsontext.decode(await self._call("output", of_terminal), _outputs)
        status = status or output.exit_status or _ExitStatus()
        return CommandEnd(
            stdout=output.output.encode("utf-8", "replace"),
            stderr=b"",
            exit_code=status.exit_code,
            signal=status.signal,
            timed_out=limit.cancelled_caught,
            stdout_truncated=output.truncated,
        )

    async def _call(self, method: str, params: dict[str, Any]) -> bytes:
        return await self._ask(f"terminal/{method}", {"sessionId": self._session_id, **params})
