"""`input.json`: what the client does, step by step.

The structs here and in `steps` are the format. `input.schema.json` beside this module is generated
from them (`dsh-acp snapshot schema`), `Input.decode` enforces them, and unknown fields are errors,
so a misspelt step never passes silently.
"""

from functools import cache
import json
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Struct, UnsetType

from dsh_acp import jsontext
from dsh_acp.snapshot import steps as s
from dsh_acp.snapshot.steps import Json, Name, Optional

AnyStep: TypeAlias = (
    s.Initialize
    | s.Authenticate
    | s.Logout
    | s.Restart
    | s.Request
    | s.Notify
    | s.Raw
    | s.NewSession
    | s.NewSessionExpectError
    | s.Load
    | s.Resume
    | s.Fork
    | s.List
    | s.Close
    | s.Delete
    | s.SetMode
    | s.SetModeExpectError
    | s.SetConfigOption
    | s.SetConfigOptionExpectError
    | s.Prompt
    | s.PromptContent
    | s.PromptExpectError
    | s.StartPrompt
    | s.AwaitPrompt
    | s.PromptAndWaitForAgentMessage
    | s.PromptAndCancel
    | s.Cancel
    | s.Answer
    | s.WaitForUpdate
    | s.WaitForQuestion
    | s.WaitForFile
    | s.WaitForTurnStart
    | s.WaitForTurnEnd
    | s.WaitForSubagentTurnEnd
    | s.WaitForEventAfterTurnEnd
    | s.WaitForEvent
    | s.WaitForTitleAfterTurnEnd
    | s.WaitForInboxMessage
    | s.WaitForGoalPhase
    | s.SetBuffer
    | s.WriteFile
    | s.DeleteFile
    | s.ExpectFile
    | s.ExpectBuffer
)


class _Part(Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    pass


class PermissionAnswer(_Part, frozen=True, kw_only=True):
    """What the person answers; see `Desk.script`. Exactly one field."""

    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"] | UnsetType = UNSET
    option_id: Optional = UNSET
    outcome: Literal["cancelled"] | UnsetType = UNSET
    error: Json | UnsetType = UNSET
    hold: bool = False


class ElicitationAnswer(_Part, frozen=True, kw_only=True):
    """What the person fills in; see `Desk.script`."""

    action: Optional = UNSET
    content: Json | UnsetType = UNSET
    choice: str | tuple[str, ...] | UnsetType = UNSET
    custom: Optional = UNSET
    error: Json | UnsetType = UNSET
    hold: bool = False


class Agent(_Part, frozen=True, kw_only=True):
    """How the agent is started for this scenario.

    `config` is the text of its configuration file; `argv` a command instead of this project's own
    agent; `args` are further arguments; `model` names a model that needs no script (`local`). A
    scripted model goes by the name in the recorded log; before there is one, by `route`.
    """

    argv: tuple[str, ...] | UnsetType = UNSET
    args: tuple[str, ...] = ()
    env: dict[str, str] | UnsetType = UNSET
    config: Optional = UNSET
    permission: Optional = UNSET
    model: Optional = UNSET
    route: Optional = UNSET


class Only(_Part, frozen=True, kw_only=True):
    """The one protocol version in which a scenario has a place, and why not in the other."""

    version: Literal[1, 2]
    because: str


class Input(_Part, frozen=True, kw_only=True):
    """One scenario's script.

    `shows` says in one line what the scenario is for. `headerClass` groups scenarios whose
    requests carry the same system prompt and tools; the one that `pinsHeader` owns their text.
    `comparesLog` is off for a scenario of a foreign agent, which has no log to compare. A scenario
    is played in every protocol version, unless it is about something that `only` one of them has.
    """

    shows: Optional = UNSET
    agent: Agent | UnsetType = UNSET
    header_class: Name = "default"
    pins_header: bool = False
    compares_log: bool = True
    only: Only | UnsetType = UNSET
    steps: tuple[AnyStep, ...] = ()
    permission_answers: tuple[PermissionAnswer, ...] = ()
    elicitation_answers: tuple[ElicitationAnswer, ...] = ()

    @classmethod
    def decode(cls, text: bytes) -> "Input":
        """Read an `input.json`.

        Raises:
            msgspec.DecodeError: with the path of the first mistake.
        """
        return _decoder().decode(text)

    def to_json(self) -> bytes:
        """The one canonical text: two spaces, fields in the order of the format, final newline."""
        return pretty(jsontext.loads(jsontext.encode(self)))


@cache
def _decoder() -> "msgspec.json.Decoder[Input]":
    return msgspec.json.Decoder(Input)


def pretty(value: Any) -> bytes:
    """JSON as the kit writes it for people."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def schema() -> bytes:
    """The text of `input.schema.json`."""
    (ref,), defs = msgspec.json.schema_components([Input], ref_template="#/$defs/{name}")
    head: Json = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A snapshot scenario's input.json",
        **ref,
    }
    return pretty(head | {"$defs": dict(sorted(defs.items()))})
