"""The editor's side of `fs/*`: unsaved buffers over the real disk.

A path that has a buffer reads from it, whatever the disk says; a write to such a path changes
both, as an editor does that saves after an agent's edit.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import anyio

from dsh_acp.snapshot.desk import RpcError

NOT_FOUND: Final = -32002


class Buffers:
    """Unsaved buffers by absolute path; `reads` and `writes` record what the agent asked for."""

    def __init__(self) -> None:
        self.unsaved: Final[dict[str, str]] = {}
        self.reads: Final[list[str]] = []
        self.writes: Final[list[str]] = []

    def handlers(self) -> dict[str, Callable[[dict[str, Any]], Awaitable[Any]]]:
        """The request handlers by method."""
        return {"fs/read_text_file": self.read, "fs/write_text_file": self.write}

    async def read(self, params: dict[str, Any]) -> dict[str, str]:
        """`fs/read_text_file`: `line` from 1, `limit` in lines; a missing file is an error."""
        path = Path(params["path"])
        self.reads.append(str(path))
        text = self.unsaved.get(str(path))
        if text is None:
            try:
                data = await anyio.to_thread.run_sync(path.read_bytes)
            except OSError as exc:
                raise RpcError(NOT_FOUND, f"Resource not found: {path}") from exc
            text = data.decode("utf-8", "replace")
        first = max(0, (params.get("line") or 1) - 1)
        limit = params.get("limit")
        if first or limit is not None:
            lines = text.split("\n")
            chosen = lines[first:] if limit is None else lines[first : first + limit]
            text = "\n".join(chosen)
        return {"content": text}

    async def write(self, params: dict[str, Any]) -> dict[str, Any]:
        """`fs/write_text_file`: creates the file and its parent folder when missing."""
        path = Path(params["path"])
        self.writes.append(str(path))
        if str(path) in self.unsaved:
            self.unsaved[str(path)] = params["content"]
        data = params["content"].encode("utf-8", "replace")

        def put() -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

        try:
            await anyio.to_thread.run_sync(put)
        except OSError as exc:
            raise RpcError(-32603, f"cannot write {path}: {exc.strerror}") from exc
        return {}
