"""The commands of this program: what `/help` lists."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from dsh_acp.agent import policy
from dsh_acp.agent.activity import Activity
from dsh_acp.agent.commands import Command, CommandInfo, CommandResult, Commands, prompt, said
from dsh_acp.agent.compaction import Compaction
from dsh_acp.agent.parts import Parts
from dsh_acp.config import Preset
from dsh_acp.errors import DshError
from dsh_acp.messages import Request

_INIT: Final = """\
Look at this project and write an AGENTS.md in its root, for coding agents that will work here. If \
there is one, improve it instead, and keep what its authors wrote on purpose. Find out, from the \
files themselves and not by guessing:

- what the project is, in a sentence or two, and where its main parts are;
- the exact commands to set it up, build it, run it, check it and run one single test;
- conventions that a newcomer would get wrong: style, naming, error handling, tests, commits;
- anything that must never be done here.

Keep it under a hundred lines, concrete, without advice that holds for every project. Verify the \
commands that are safe to run."""


class Host(Protocol):
    """The session, as commands see it."""

    @property
    def parts(self) -> Parts: ...
    @property
    def compaction(self) -> Compaction: ...
    @property
    def commands(self) -> Commands: ...

    def select(self, option: str, value: str) -> None: ...

    async def run_maintenance(self, job: Callable[[Activity], Any]) -> Any: ...


class Builtin:
    """The built-in commands, bound to one session."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._parts = host.parts

    def all(self) -> Mapping[str, Command]:
        """By name."""
        table = (
            ("audit", "Prove every request of this session from its log", None, self._audit),
            ("compact", "Summarise the history to make room", "what to keep", self._compact),
            ("fork", "Continue this conversation in a new session", None, self._fork),
            ("help", "List the commands", None, self._help),
            ("init", "Write an AGENTS.md for this project", None, self._init),
            ("model", "Show or choose the model", "provider/model [effort]", self._model),
            (
                "permissions",
                "Show or choose what runs without asking",
                " | ".join(policy.PRESETS) + " | reset",
                self._permissions,
            ),
            ("plan", "Plan without changing anything", "off | what to plan", self._plan),
            ("status", "Show model, permissions, tokens and cost", None, self._status),
        )
        return {
            name: Command(CommandInfo(name, description, hint), run)
            for name, description, hint, run in table
        }

    async def _help(self, args: str, command_id: str) -> CommandResult:
        lines = [
            f"- `/{info.name}{f' {info.hint}' if info.hint else ''}` — {info.description}"
            for info in self._host.commands.list()
        ]
        return said("\n".join(lines))

    async def _init(self, args: str, command_id: str) -> CommandResult:
        wish = f"\n\n{args.strip()}" if args.strip() else ""
        return CommandResult(prompt=prompt(_INIT + wish))

    # ------------------------------------------------------------ choices

    async def _plan(self, args: str, command_id: str) -> CommandResult:
        wish = args.strip()
        if wish == "off":
            if self._parts.options.preset != "plan":
                return said("Plan mode is off already.")
            back = self._parts.options.before_plan
            self._host.select("preset", back)
            return said(f"Plan mode off; permissions: {back}.")
        if self._parts.options.preset != "plan":
            self._host.select("preset", "plan")
        return CommandResult(
            "" if wish else "Plan mode on: nothing is changed until you leave it with `/plan off`.",
            prompt=prompt(wish) if wish else None,
        )

    async def _permissions(self, args: str, command_id: str) -> CommandResult:
        wish = args.strip()
        if wish == "reset":
            count = len(self._grants)
            if count:
                self._parts.gate.revoke_all()
            return said(f"Forgot {count} remembered answer{'' if count == 1 else 's'}.")
        if wish:
            self._host.select("preset", wish)
            return said(f"Permissions: {wish}. {policy.DESCRIPTIONS[self._preset]}")
        lines = [f"Permissions: **{self._preset}**. {policy.DESCRIPTIONS[self._preset]}", ""]
        lines += [f"- `{name}` — {text}" for name, text in policy.DESCRIPTIONS.items()]
        grants = self._grants
        if grants:
            lines += ["", "Remembered for this session (`/permissions reset` forgets them):"]
            lines += [
                f"- {decision} `{key.tool}`{f': {key.scope}' if key.scope else ''}"
                for key, decision in grants.items()
            ]
        return said("\n".join(lines))

    @property
    def _grants(self) -> Mapping[policy.GrantKey, str]:
        self._parts.folds.catch_up()
        return self._parts.policy.grants

    @property
    def _preset(self) -> Preset:
        return self._parts.options.preset

    async def _model(self, args: str, command_id: str) -> CommandResult:
        options = self._parts.options
        words = args.split()
        if words:
            self._host.select("model", words[0])
            if len(words) > 1:
                self._host.select("effort", "" if words[1] == "default" else words[1])
            effort = f" ({options.effort})" if options.effort else ""
            return said(f"Model: {options.spec}{effort}, from the next request on.")
        lines = [f"Model: **{options.spec or 'none'}**", ""]
        lines += [
            f"- `{provider.name}/{info.id}`"
            for provider, info in self._parts.services.providers.known()
        ]
        return said("\n".join(lines))

    # ------------------------------------------------------------ looking

    async def _status(self, args: str, command_id: str) -> CommandResult:
        parts = self._parts
        parts.folds.catch_up()
        options, usage, total = parts.options, parts.usage, parts.usage.session
        window = usage.context_window
        share = f" of {window:,} ({usage.context_used / window:.0%})" if window else ""
        lines = [
            f"- Session: `{parts.log.header.id}`, {parts.log.last_turn} turns",
            f"- Model: {options.spec or 'none'}{f' ({options.effort})' if options.effort else ''}",
            f"- Permissions: {options.preset}",
            f"- Directory: {options.cwd}",
            *[f"- Also: {path}" for path in options.additional_directories],
            f"- Context: {usage.context_used:,} tokens{share}",
            f"- Tokens: {total.input:,} in, {total.cache_read:,} from cache, "
            f"{total.output:,} out, in {total.requests} requests",
        ]
        if usage.costs:
            money = ", ".join(f"{amount:.4f} {name}" for name, amount in usage.costs.items())
            partly = f" ({usage.unpriced} requests of unknown price)" if usage.unpriced else ""
            lines.append(f"- Cost: {money}{partly}")
        where = str(parts.log.path) if parts.log.path else "in memory only; it is lost at the end"
        lines.append(f"- Log: {where}")
        return said("\n".join(lines))

    async def _audit(self, args: str, command_id: str) -> CommandResult:
        from dsh_acp.log.audit import audit_log

        report = audit_log(self._parts.log.lines(0), self._body_of)
        count = len(report.requests)
        if report.ok:
            proved = sum(request.proved is True for request in report.requests)
            return said(
                f"Every one of {count} requests follows from the log of {report.events} events; "
                f"{proved} bodies were built again and match their recorded digest."
            )
        lines = [f"The log does not explain what was sent ({len(report.problems)} problems):", ""]
        lines += [f"- event {problem.seq}: {problem.text}" for problem in report.problems[:20]]
        return CommandResult("\n".join(lines), is_error=True)

    def _body_of(self, request: Request) -> bytes:
        provider = self._parts.services.providers.get(request.config.provider)
        if provider is None:
            raise DshError(
                f'no provider named "{request.config.provider}" is configured', code="NO_ADAPTER"
            )
        return provider.body(request).data

    # ------------------------------------------------------------ doing

    async def _compact(self, args: str, command_id: str) -> CommandResult:
        async def job(_: Activity) -> int:
            return await self._host.compaction.compact_now(command_id, args)

        saved = await self._host.run_maintenance(job)
        return said(f"Compacted the history: about {saved:,} tokens less.")

    async def _fork(self, args: str, command_id: str) -> CommandResult:
        parts = self._parts
        if parts.log.open_turn is not None:
            raise DshError("wait until the turn has ended, then fork", code="OPEN_TURN")
        parts.log.flush()
        child = parts.services.store.fork(parts.log.header.id)
        child_id = child.header.id
        child.close()
        return said(f"Forked to session `{child_id}`. This conversation goes on here unchanged.")
