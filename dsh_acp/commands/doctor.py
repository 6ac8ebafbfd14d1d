"""`dsh-acp doctor`: what works, what does not, and what to do about it."""

import argparse
from collections.abc import Iterator
from importlib.util import find_spec
import os
from pathlib import Path
import platform
import shutil
import sys
import tempfile
from typing import Final, Literal, cast

from msgspec import Struct

from dsh_acp import __version__, config, jsontext
from dsh_acp.commands.endpoint import ask
from dsh_acp.config import ProviderSettings, Secret, Settings
from dsh_acp.errors import ConfigError

State = Literal["ok", "note", "problem"]
_LITTLE_SPACE: Final = 200 * 1024 * 1024


class Finding(Struct, frozen=True):
    """One thing that was looked at; `fix` says what to do when it is not `ok`."""

    what: str
    state: State
    detail: str
    fix: str = ""


def main(argv: list[str]) -> int:
    """Look at everything; 1 when something stands in the way of a session."""
    parser = argparse.ArgumentParser(
        prog="dsh-acp doctor",
        description="Check the installation, the configuration and the editors.",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("--offline", action="store_true", help="do not ask the model's endpoint")
    parser.add_argument("--timeout", type=float, default=5, help="seconds for the endpoint (5)")
    parser.add_argument("--model", help="check this model instead of the configured one")
    options = parser.parse_args(argv)
    timeout = None if options.offline else options.timeout
    findings = list(examine(options.model, timeout))
    if options.json:
        sys.stdout.write(jsontext.encode(findings).decode() + "\n")
    else:
        _print(findings)
    return 1 if any(finding.state == "problem" for finding in findings) else 0


def examine(model: str | None = None, timeout_s: float | None = 5) -> Iterator[Finding]:
    """Every finding, in the order in which a person would look; `None` asks no endpoint."""
    yield _interpreter()
    yield _command()
    try:
        settings = config.load(config.Flags(model=model))
    except ConfigError as exc:
        for problem in exc.problems:
            # What was named and is not there says itself what to do.
            fix = "" if "; create it" in problem else "Correct it there, or remove it."
            # A key that is not known stands in nobody's way, beside mistakes either.
            state: State = "note" if problem.endswith("; it is ignored") else "problem"
            yield Finding("configuration", state, problem, fix)
        settings = _settings_without_file()
        if settings is None:
            return
    else:
        yield _configuration(settings)
        for note in settings.notes:
            yield Finding("configuration", "note", note, "Correct or remove it.")
        yield from _model(settings, timeout_s)
    yield _state(settings)
    yield _confinement(settings)
    yield _language_servers(settings)
    yield from _editors()


def _interpreter() -> Finding:
    detail = f"dsh-acp {__version__}, Python {platform.python_version()}, {platform.platform()}"
    return Finding("installation", "ok", detail)


def _command() -> Finding:
    found = shutil.which("dsh-acp")
    if found:
        return Finding("command", "ok", found)
    return Finding(
        "command",
        "note",
        "dsh-acp is not on the PATH of this terminal",
        "Editors need its absolute path: dsh-acp setup EDITOR writes that. For the terminal, add "
        f"{Path(sys.executable).parent} to PATH.",
    )


def _settings_without_file() -> Settings | None:
    try:
        return config.load(config.Flags(config=os.devnull))
    except ConfigError:
        return None


def _configuration(settings: Settings) -> Finding:
    if settings.config_path.exists():
        return Finding("configuration", "ok", str(settings.config_path))
    detail = f"no file at {settings.config_path}; built-in values are used"
    return Finding("configuration", "ok", detail)


_SIGN_IN: Final = "Run: dsh-acp login   (or set DEEPSEEK_API_KEY)"


def _model(settings: Settings, timeout_s: float | None) -> Iterator[Finding]:
    if settings.model is None:
        detail = "no model is chosen and there is no key"
        yield Finding("model", "problem", detail, _SIGN_IN)
        return
    name, _, model = settings.model.partition("/")
    if settings.model.startswith("replay:"):
        yield Finding("model", "ok", f"{settings.model} (no key, no network)")
    elif name == "local" and name not in settings.providers:
        yield _local()
    elif (provider := _provider(settings, name)) is None or not model:
        yield Finding(
            "model",
            "problem",
            f"{settings.model} does not name a known provider and a model",
            f"Write PROVIDER/MODEL with one of: {', '.join(settings.providers)}",
        )
    else:
        yield Finding("model", "ok", settings.model)
        key = _key(settings, provider)
        yield key
        if timeout_s is not None and key.state == "ok":
            yield from _endpoint(provider, model, timeout_s)
        yield from _catalogue(settings, provider, model)


def _provider(settings: Settings, name: str) -> ProviderSettings | None:
    """The provider as it would be used; known servers need no configuration."""
    from dsh_acp.llm.dialects import DIALECTS

    if name in settings.providers:
        return settings.providers[name]
    if name in DIALECTS and (url := DIALECTS[name].base_url):
        variable = DIALECTS[name].key_env or None
        key = os.environ.get(variable, "").strip() if variable else ""
        return ProviderSettings(
            name=name,
            dialect=name,
            base_url=url,
            api_key_env=variable,
            api_key=Secret(key) if key else None,
        )
    return None


def _local() -> Finding:
    missing = [name for name in ("xllamacpp",) if find_spec(name) is None]
    if missing:
        fix = "Run: pip install 'dsh-acp[local]'"
        return Finding("model", "problem", "the model in this process is not installed", fix)
    return Finding("model", "ok", "local (no key, no network)")


def _key(settings: Settings, provider: ProviderSettings) -> Finding:
    from dsh_acp.llm.registry import Checked, Providers

    if provider.api_key is not None:
        return Finding("key", "ok", f"there is a key for {provider.name}")
    served = Providers(settings).get(provider.name)
    if not isinstance(served, Checked) or served.is_usable:
        return Finding("key", "ok", f"{provider.name} is used without one; its endpoint judges")
    variable = f"   (or set {provider.api_key_env})" if provider.api_key_env else ""
    fix = f"Run: dsh-acp login {provider.name}{variable}"
    return Finding("key", "problem", f"there is no key for {provider.name}", fix)


def _catalogue(settings: Settings, provider: ProviderSettings, model: str) -> Iterator[Finding]:
    """A note on a model of a vendor's own address that this version does not know."""
    from dsh_acp.config.sources import BUILTIN
    from dsh_acp.llm.registry import Providers

    served = Providers(settings).get(provider.name)
    own = any(known.base_url == provider.base_url for known in BUILTIN)
    ids = [] if served is None or not own else [info.id for info in served.models()]
    if ids and model not in ids:
        detail = f"{model} is not a model of {provider.name} that this version knows"
        yield Finding("model", "note", detail, f"Known are, for example: {', '.join(ids[:5])}")


def _endpoint(provider: ProviderSettings, model: str, timeout_s: float) -> Iterator[Finding]:
    answer = ask(provider, timeout_s)
    at = provider.base_url
    match answer.verdict:
        case "ok":
            yield Finding("endpoint", "ok", f"{at}: {answer.detail}")
            if answer.models and model not in answer.models:
                fix = f"It lists, for example: {', '.join(answer.models[:5])}"
                yield Finding("model", "note", f"{at} does not list {model}", fix)
        case "refused":
            yield Finding("endpoint", "problem", f"{at}: {answer.detail}", _SIGN_IN)
        case "unreachable":
            fix = "Check the network, a proxy (HTTPS_PROXY) and the base_url of the provider."
            yield Finding("endpoint", "problem", f"{at}: {answer.detail}", fix)
        case "odd":
            fix = "Check the base_url; a server without a model list may work all the same."
            yield Finding("endpoint", "note", f"{at}: {answer.detail}", fix)


def _state(settings: Settings) -> Finding:
    home = settings.home
    fix = "Set DSH_ACP_HOME to a directory that can be written; without one, sessions are lost."
    there = next((path for path in (home, *home.parents) if path.exists()), home)
    try:
        if there == home:
            with tempfile.TemporaryFile(dir=home) as file:
                file.write(b"x")
                file.flush()
                os.fsync(file.fileno())
        elif not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
            return Finding("sessions", "problem", f"{home} cannot be made in {there}", fix)
        free = shutil.disk_usage(there).free
    except OSError as exc:
        return Finding("sessions", "problem", f"{home}: {exc.strerror or exc}", fix)
    if free < _LITTLE_SPACE:
        left = f"{free // 1024 // 1024} MiB are free"
        return Finding("sessions", "note", f"{home}: only {left}", "Make room, or move it.")
    return Finding("sessions", "ok", f"kept in {home}")


def _confinement(settings: Settings) -> Finding:
    from dsh_acp.tools.confine import Confinement

    means = Confinement(settings).means
    if means is not None:
        detail = f"under workspace-write, {means.name} lets commands write to the workspace only"
        detail += ", with network" if settings.sandbox_network else ", without network"
        return Finding("confinement", "ok", f"{detail}; {means.limits}".removesuffix("; "))
    if settings.sandbox == "off":
        detail, fix = "it is switched off", 'Set sandbox = "auto" to have commands confined.'
    else:
        detail = "nothing on this system confines commands"
        fix = "On Linux, a kernel with Landlock or bubblewrap (bwrap) on the PATH does."
    asked = "under workspace-write each command is asked about and then runs with your rights"
    return Finding("confinement", "note", f"{detail}; {asked}", fix)


def _language_servers(settings: Settings) -> Finding:
    from dsh_acp.lsp.servers import Servers

    found = [each.known.name for each in Servers(settings.lsp_servers).installed()]
    if found:
        return Finding("language servers", "ok", ", ".join(found))
    fix = "Install one for your language, such as basedpyright or gopls, or name it in [lsp.NAME]."
    return Finding("language servers", "note", "none is installed; code is searched as text", fix)


def _editors() -> Iterator[Finding]:
    from dsh_acp.commands import jsonc
    from dsh_acp.commands.editor_files import EDITORS, NAME

    for name, editor in EDITORS.items():
        path = editor.path(os.environ) if editor.path else None
        if path is None or not path.exists():
            continue
        what, fix = f"editor {name}", f"Run: dsh-acp setup {name} --write"
        try:
            text = path.read_text(encoding="utf-8")
            known = NAME in text or NAME.replace("-", "_") in text
            command = _named_command(jsonc.parse(text)) if editor.kind == "json" else None
        except (OSError, UnicodeDecodeError, jsonc.JsoncError) as exc:
            yield Finding(
                what, "problem", f"{path}: {exc}", "Correct it; the editor cannot read it."
            )
            continue
        if not known:
            yield Finding(what, "note", f"{path} does not start this agent", fix)
        elif command is not None and not shutil.which(command):
            yield Finding(what, "problem", f"{path} starts {command}, which does not exist", fix)
        else:
            yield Finding(what, "ok", str(path))


def _named_command(settings: object) -> str | None:
    """The command of this agent's entry, wherever in the file it is."""
    from dsh_acp.commands.editor_files import NAME

    waiting: list[object] = [settings]
    while waiting:
        value = waiting.pop()
        if not isinstance(value, dict):
            continue
        members = cast(dict[str, object], value)
        entry = members.get(NAME)
        if isinstance(entry, dict):
            command = cast(dict[str, object], entry).get("command")
            return command if isinstance(command, str) else None
        waiting.extend(members.values())
    return None


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    marks = {"ok": ("✓", "green"), "note": ("!", "yellow"), "problem": ("✗", "red")}
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        mark, style = marks[finding.state]
        line = Text.assemble((mark, style), f" {finding.what:{width}}  {finding.detail}")
        console.print(line, soft_wrap=True)
        if finding.fix and finding.state != "ok":
            console.print(Text(f"  {'':{width}}  → {finding.fix}", style="dim"), soft_wrap=True)
    problems = sum(finding.state == "problem" for finding in findings)
    verdict = "Everything that a session needs is there."
    if problems:
        verdict = f"{problems} thing{'s' * (problems > 1)} must be put right first."
    console.print(Text(verdict, style="bold"))
