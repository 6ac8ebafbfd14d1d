"""Keys that `dsh-acp login` stored: in the system keyring where there is one, else in a file.

The file `credentials.json` in the configuration directory has mode 0600 and says, per provider,
either the key or that the keyring has it: `{"keys": {"deepseek": "sk-…"}, "keyring": ["openai"]}`.
So a start without stored keys never imports the keyring library.
"""

from collections.abc import Callable
import contextlib
import importlib
import os
from pathlib import Path
from typing import Any, Literal, Protocol, cast

import msgspec
from msgspec import Struct

from dsh_acp import jsontext
from dsh_acp.config.settings import Secret
from dsh_acp.errors import ConfigError

SERVICE = "dsh-acp"


class Keyring(Protocol):
    """The three calls of the `keyring` package that are used here."""

    def get_password(self, service: str, username: str, /) -> str | None:
        """The stored text, if any."""
        ...

    def set_password(self, service: str, username: str, password: str, /) -> None:
        """Store a text."""
        ...

    def delete_password(self, service: str, username: str, /) -> None:
        """Forget it."""
        ...


class _Stored(Struct):
    keys: dict[str, str] = {}
    keyring: list[str] = []


def system_keyring() -> Keyring | None:
    """The system's keyring when the `keyring` package is installed and has a real backend."""
    try:
        # Optional, and so imported by name: the type checker need not have it.
        module: Any = importlib.import_module("keyring")
        fail: Any = importlib.import_module("keyring.backends.fail")
    except ImportError:
        return None
    backend = module.get_keyring()
    if isinstance(backend, fail.Keyring) or getattr(backend, "priority", 1) <= 0:
        return None
    return cast(Keyring, module)


class Credentials:
    """The stored keys of one configuration directory."""

    def __init__(
        self, directory: Path, keyring: Callable[[], Keyring | None] = system_keyring
    ) -> None:
        self.path = directory / "credentials.json"
        self._keyring = keyring
        self.notes: list[str] = []
        """Sentences about what could not be read."""

    def names(self) -> tuple[str, ...]:
        """The providers that have a stored key."""
        stored = self._read()
        return tuple(dict.fromkeys([*stored.keys, *stored.keyring]))

    def get(self, provider: str) -> Secret | None:
        """The stored key of `provider`; a broken store is a note, never an error."""
        stored = self._read()
        if provider in stored.keys:
            return Secret(stored.keys[provider])
        if provider not in stored.keyring:
            return None
        found: str | None = None
        why = "it has none"
        if keyring := self._keyring():
            try:
                found = keyring.get_password(SERVICE, provider)
            except Exception as exc:  # noqa: BLE001 (keyring backends raise anything)
                why = str(exc) or type(exc).__name__
        else:
            why = "it is not available here"
        if found is None:
            self.notes.append(f"the key of {provider} is in the system keyring, but {why}")
        return Secret(found) if found else None

    def put(self, provider: str, key: str) -> Literal["keyring", "file"]:
        """Store `key`, and say where it went.

        Raises:
            ConfigError: the file cannot be written.
        """
        stored = self._read()
        where: Literal["keyring", "file"] = "file"
        if keyring := self._keyring():
            try:
                keyring.set_password(SERVICE, provider, key)
                where = "keyring"
            except Exception:  # noqa: BLE001, S110 (a locked or absent keyring: use the file)
                pass
        stored.keys.pop(provider, None)
        stored.keyring = [name for name in stored.keyring if name != provider]
        if where == "keyring":
            stored.keyring.append(provider)
        else:
            stored.keys[provider] = key
        self._write(stored)
        return where

    def remove(self, provider: str) -> bool:
        """Forget the key of `provider`; whether there was one.

        Raises:
            ConfigError: the file cannot be written, or the keyring refuses to forget.
        """
        stored = self._read()
        if provider in stored.keyring and (keyring := self._keyring()):
            try:
                keyring.delete_password(SERVICE, provider)
            except Exception as exc:
                if keyring.get_password(SERVICE, provider) is not None:
                    raise ConfigError([f"the system keyring did not forget it: {exc}"]) from exc
        known = provider in stored.keys or provider in stored.keyring
        if known:
            stored.keys.pop(provider, None)
            stored.keyring = [name for name in stored.keyring if name != provider]
            self._write(stored)
        return known

    def _read(self) -> _Stored:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_Stored)
        except (FileNotFoundError, NotADirectoryError):
            return _Stored()
        except OSError as exc:
            self.notes.append(f"cannot read {self.path}: {exc.strerror or exc}")
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.notes.append(f"{self.path} is not a file of stored keys; run: dsh-acp login")
        return _Stored()

    def _write(self, stored: _Stored) -> None:
        scratch = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # The mode is given at creation: there is no moment at which others could read it.
            scratch.unlink(missing_ok=True)
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(jsontext.encode(stored) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self.path)
        except OSError as exc:
            with contextlib.suppress(OSError):
                scratch.unlink(missing_ok=True)
            raise ConfigError([f"cannot write {self.path}: {exc.strerror or exc}"]) from exc
