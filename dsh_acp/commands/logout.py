"""`dsh-acp logout`: forget stored keys."""

import argparse
import os
import sys

from dsh_acp.commands.logs import lenient_settings
from dsh_acp.config.credentials import Credentials
from dsh_acp.errors import ConfigError


def main(argv: list[str]) -> int:
    """Forget; 0 also when nothing was stored."""
    parser = argparse.ArgumentParser(
        prog="dsh-acp logout", description="Forget stored keys: of one provider, or of all."
    )
    parser.add_argument("provider", nargs="?", help="whose key (default: every stored key)")
    options = parser.parse_args(argv)
    settings = lenient_settings()
    store = Credentials(settings.config_dir)
    stored = store.names()
    if options.provider is not None and options.provider not in stored:
        if options.provider not in settings.providers:
            raise ConfigError([f"there is no provider {options.provider}"])
        stored = ()
    names = stored if options.provider is None else (options.provider,)
    forgotten = [name for name in names if store.remove(name)]
    _say(f"Forgot the key of {', '.join(forgotten)}." if forgotten else "No key was stored.")
    for name in names:
        variable = settings.providers[name].api_key_env if name in settings.providers else None
        if variable and os.environ.get(variable):
            _say(f"{variable} is still set in the environment and is used.")
    return 0


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
