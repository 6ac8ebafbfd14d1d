"""The person at the editor: permission questions and other questions of one session.

A question goes out only when its call is on the screen: it waits for the cursor to pass the last
event. No usable answer is a no.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from dsh_acp import jsontext
from dsh_acp.acp import forms
from dsh_acp.acp.client import Client
from dsh_acp.acp.codec import Asking
from dsh_acp.agent.services import Decision, PermissionQuestion
from dsh_acp.errors import ToolError
from dsh_acp.messages import Text
from dsh_acp.tools.legible import block, legible, one_line
from dsh_acp.tools.tool import Card
from dsh_acp.wire.frames import RpcError

_OPTION_IDS: Final[Mapping[Decision, str]] = {
    "allow_once": "allow-once",
    "allow_always": "allow-always",
    "reject_once": "reject-once",
    "reject_always": "reject-always",
}
_DECISIONS: Final[Mapping[str, Decision]] = {
    option: decision for decision, option in _OPTION_IDS.items()
}


class Desk(Protocol):
    """What a question needs of its conversation."""

    id: str
    client: Client

    async def caught_up(self) -> None:
        """Wait until everything logged so far has been sent."""
        ...

    def permission(self, asking: Asking) -> dict[str, Any]:
        """The params of a permission request."""
        ...

    def public_call_id(self, call_id: str) -> str:
        """The editor's id for a call."""
        ...

    def cancel_turn(self) -> None:
        """Stop the running turn, as the person asked."""
        ...

    async def ask(self, method: str, params: Any) -> bytes:
        """A request to the client."""
        ...


class _Outcome(Struct, frozen=True, rename="camel"):
    outcome: str = ""
    option_id: str = ""


class _Answer(Struct, frozen=True):
    outcome: _Outcome = _Outcome()


_answers: Final = msgspec.json.Decoder(_Answer)


class EditorAsker:
    """An `Asker` over `session/request_permission` and `elicitation/create`.

    `desk` is the conversation that it asks in, set as soon as there is one.
    """

    desk: Desk

    async def permission(self, question: PermissionQuestion) -> Decision:
        """The person's decision; a client that cannot ask counts as unavailable."""
        card = _full_card(question)
        options = [
            {"optionId": _OPTION_IDS[choice], "name": _label(choice, question), "kind": choice}
            for choice in question.choices
            if choice in _OPTION_IDS
        ]
        await self.desk.caught_up()
        command = question.intent.command
        asking = Asking(
            call_id=self.desk.public_call_id(question.call_id),
            name=question.tool,
            card=card,
            plain_card=replace(question.card, diffs=card.diffs),
            title=card.title or question.tool,
            description=legible(question.reason) if question.reason else None,
            command=command,
            cwd=question.intent.cwd if command is not None else None,
            options=options,
        )
        chosen = await self._choose(asking)
        if chosen is None:
            self.desk.cancel_turn()
            return "cancelled"
        return _DECISIONS.get(chosen, "reject_once")

    async def _choose(self, asking: Asking) -> str | None:
        """The chosen option's id; `None` when the person cancelled.

        Raises:
            RpcError: the client cannot ask.
        """
        params = self.desk.permission(asking)
        raw = await self.desk.ask("session/request_permission", params)
        outcome = jsontext.decode(raw, _answers).outcome
        if outcome.outcome == "cancelled":
            return None
        return outcome.option_id if outcome.outcome == "selected" else ""

    # ------------------------------------------------------------ questions

    async def questions(
        self, questions: Sequence[Mapping[str, Any]]
    ) -> Sequence[Mapping[str, Any]]:
        """One answer per question, asked one after the other.

        Raises:
            ToolError: `ASK_CANCELLED`, `NO_ANSWER`, `ASK_FAILED`, `NO_CHANNEL`.
        """
        await self.desk.caught_up()
        return [await self._question(question) for question in questions]

    async def _question(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            if self.desk.client.forms:
                params = {**self._scope(question), **forms.request(question)}
                return forms.answer(question, await self.desk.ask("elicitation/create", params))
            return await self._question_as_options(question)
        except RpcError as exc:
            raise ToolError(
                f"the question could not be put to the user: {exc.message}", code="ASK_FAILED"
            ) from exc

    def _scope(self, question: Mapping[str, Any]) -> dict[str, Any]:
        scope: dict[str, Any] = {"sessionId": self.desk.id}
        if call_id := question.get("callId"):
            scope["toolCallId"] = self.desk.public_call_id(str(call_id))
        return scope

    async def _question_as_options(self, question: Mapping[str, Any]) -> Mapping[str, Any]:
        """For clients without forms: each option is a button. Free text has no such form.

        A review has no button beside its own options: what is not approval means no.
        """
        labels = forms.labels(question)
        if not labels:
            raise ToolError(
                "this editor cannot show questions with free answers; "
                "ask in your reply and end the turn",
                code="NO_CHANNEL",
            )
        approve = forms.approval(question)
        options: list[dict[str, Any]] = [
            {
                "optionId": f"option-{position}",
                "name": label,
                "kind": "allow_once" if approve in (None, label) else "reject_once",
            }
            for position, label in enumerate(labels)
        ]
        if approve is None:
            options.append({"optionId": "none", "name": "None of these", "kind": "reject_once"})
        call_id = question.get("callId")
        title = str(question.get("question", ""))
        card = Card(
            title=title,
            kind="think" if approve is None else "switch_mode",
            content=(Text(forms.message(question)),),
        )
        id = str(call_id) if call_id else f"question-{question.get('id', '')}"
        detail = question.get("detail")
        asking = Asking(
            call_id=self.desk.public_call_id(id),
            name="question",
            card=card,
            plain_card=card,
            title=title,
            description=str(detail) if detail else None,
            options=options,
        )
        chosen = await self._choose(asking)
        if chosen is None:
            self.desk.cancel_turn()
            raise ToolError("the user cancelled the question", code="ASK_CANCELLED")
        for position, label in enumerate(labels):
            if chosen == f"option-{position}":
                return {"id": question.get("id"), "selected": [label]}
        raise ToolError("the user chose none of the options", code="ASK_CANCELLED")


def _full_card(question: PermissionQuestion) -> Card:
    """The call's card with everything needed to judge it: whole command, folder, diffs, reason."""
    card = question.card
    texts: list[str] = [block.text for block in card.content or () if isinstance(block, Text)]
    command = question.intent.command
    if command is not None and (command != card.title or "\n" in command):
        texts.insert(0, block(command, "sh"))
    if command is not None and question.intent.cwd:
        texts.append(f"In {one_line(question.intent.cwd)}")
    if question.reason:
        texts.append(question.reason)
    return replace(
        card,
        content=tuple(Text(legible(text)) for text in texts),
        diffs=question.diffs or card.diffs,
    )


def _label(choice: Decision, question: PermissionQuestion) -> str:
    scope = question.scope
    if len(scope) > 60:
        scope = f"{scope[:59]}…"
    what = f"`{one_line(scope)}`" if scope else question.tool
    match choice:
        case "allow_once":
            return "Allow once"
        case "allow_always":
            return f"Always allow {what} in this session"
        case "reject_once":
            return "Reject"
        case _:
            return f"Always reject {what} in this session"
