"""What the terminal tools accept."""

from typing import Annotated, Literal

from pydantic import Field

from dsh_acp.tools.argument_rules import Arguments, filled, positive

SessionId = Annotated[str, filled("sessionId"), Field(description="The terminal, as opened.")]


class TerminalOpen(Arguments):
    """Open a terminal with a shell that lives through calls, for programs that need a dialogue.

    Examples are debuggers, prompts, consoles and programs that must see a terminal. Use bash for
    everything that runs to its end by itself.
    """

    name: Annotated[str | None, Field(description="What it is for, in a word.")] = None
    cwd: Annotated[
        str | None, Field(description="Where it starts. Default: the session's directory.")
    ] = None


class TerminalSend(Arguments):
    """Type into a terminal and return what it prints, once it waits again or is quiet."""

    sessionId: SessionId
    text: Annotated[str, Field(description="What to type.")]
    submit: Annotated[bool | None, Field(description="Press Enter after it. Default true.")] = None
    timeout_ms: Annotated[
        int | None,
        positive("timeout_ms"),
        Field(description="How long to wait, in milliseconds. Default 5000, at most 600000."),
    ] = None
    run_in_background: Annotated[
        bool | None, Field(description="Return at once. Default false.")
    ] = None


class TerminalRead(Arguments):
    """Read what a terminal printed since the last time, or lines of what it still shows."""

    sessionId: SessionId
    offset: Annotated[int | None, positive("offset"), Field(description="First line, from 1.")] = (
        None
    )
    count: Annotated[int | None, positive("count"), Field(description="How many lines.")] = None


class TerminalList(Arguments):
    """List the terminals of this session."""


class TerminalSignal(Arguments):
    """Send a signal to what runs in a terminal; INT is what Ctrl-C does."""

    sessionId: SessionId
    signal: Annotated[
        Literal["SIGINT", "SIGTERM", "SIGKILL", "SIGHUP", "SIGQUIT", "SIGTSTP", "SIGCONT"],
        Field(description="The signal."),
    ]


class TerminalClose(Arguments):
    """Close a terminal and end everything in it."""

    sessionId: SessionId
