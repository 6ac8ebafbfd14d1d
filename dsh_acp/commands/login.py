"""`dsh-acp login`: store a key for a model provider.

Also what an editor runs in a terminal when its user signs in; it must work with no arguments.
"""

import argparse
import getpass
import sys

from dsh_acp.commands.endpoint import ask
from dsh_acp.commands.logs import lenient_settings
from dsh_acp.config import ProviderSettings, Secret, Settings
from dsh_acp.config.credentials import Credentials
from dsh_acp.config.sources import BUILTIN, Builtin
from dsh_acp.errors import ConfigError, DshError


def main(argv: list[str]) -> int:
    """Store a key; 0 when it is stored, even if the endpoint could not be asked about it."""
    parser = argparse.ArgumentParser(
        prog="dsh-acp login",
        description="Store a key for a model provider: in the system keyring if there is one "
        "(pip install 'dsh-acp[keyring]'), else in a file that only you can read.",
    )
    parser.add_argument("provider", nargs="?", help="default: asked on a terminal, else deepseek")
    parser.add_argument("--no-check", action="store_true", help="do not ask the provider about it")
    parser.add_argument(
        "--force", action="store_true", help="store a key that the provider refuses"
    )
    options = parser.parse_args(argv)
    settings = lenient_settings()
    try:
        provider = _provider(settings, options.provider)
        key = _key(provider)
    except EOFError as exc:
        sys.stderr.write("\n")
        raise DshError("the input ended; nothing was stored", code="LOGIN") from exc
    if not options.no_check and provider.base_url:
        answer = ask(_with_key(provider, key))
        if answer.verdict == "refused" and not options.force:
            _say(f"{provider.base_url}: {answer.detail}. Nothing was stored.")
            _say("Copy the whole key and try again; --force stores it all the same.")
            return 1
        if answer.verdict == "unreachable":
            _say(f"{provider.base_url} could not be asked about the key: {answer.detail}.")
    store = Credentials(settings.config_dir)
    where = store.put(provider.name, key)
    place = "the system keyring" if where == "keyring" else str(store.path)
    _say(f"Stored the key of {provider.name} in {place}.")
    _say(_next_step(settings, provider.name))
    return 0


def _provider(settings: Settings, name: str | None) -> ProviderSettings:
    if name is None:
        name = _choose(settings) if sys.stdin.isatty() else BUILTIN[0].name
    if name not in settings.providers:
        known = ", ".join(settings.providers)
        raise ConfigError([f"there is no provider {name}; there are {known}"])
    return settings.providers[name]


def _choose(settings: Settings) -> str:
    names = list(settings.providers)
    titles = {known.name: known.title for known in BUILTIN}
    _say("Whose models do you want to use?")
    for number, name in enumerate(names, 1):
        _say(f"  {number}  {titles.get(name, name)}")
    while True:
        answer = input("Number or name [1]: ").strip() or "1"
        if answer.isdecimal() and 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]
        if answer.lower() in names:
            return answer.lower()


def _key(provider: ProviderSettings) -> str:
    if sys.stdin.isatty():
        if known := _builtin(provider.name):
            _say(f"Make a key at {known.keys_page}")
        text = getpass.getpass(f"Key for {provider.name} (it is not shown): ")
    else:
        text = sys.stdin.readline()
    key = text.strip()
    if not key:
        raise ConfigError(["no key was given; nothing was stored"])
    if not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(["that is not a key: it holds a space or an unusual character"])
    return key


def _with_key(provider: ProviderSettings, key: str) -> ProviderSettings:
    from msgspec.structs import replace

    return replace(provider, api_key=Secret(key))


def _next_step(before: Settings, name: str) -> str:
    if before.model is not None and not before.model.startswith(f"{name}/"):
        return f"The model is still {before.model}; choose another in the editor or with --model."
    known = _builtin(name)
    model = before.model or (f"{known.name}/{known.model}" if known else f"{name}/MODEL")
    return f"The model is {model}. Next: dsh-acp setup EDITOR, or just start a session."


def _builtin(name: str) -> Builtin | None:
    return next((known for known in BUILTIN if known.name == name), None)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
