"""What holds a command, as tools and worlds pass it on; `confine` says where one comes from."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    import subprocess

    from dsh_acp.tools.confine_denials import Denial

Launch: TypeAlias = Callable[[Sequence[str]], "subprocess.Popen[bytes]"]
"""Starts a command line."""

_ESCALATE: Final = (
    "[sandbox: escalation available — retry this exact command once with sandbox_permissions "
    "(the narrowest wider mode that suffices) + justification; the approval prompt asks the user]"
)


class Sandbox(Struct, frozen=True):
    """Where a command may write (absolute, symlinks resolved), and whether it has a network."""

    writable: tuple[str, ...]
    network: bool
    means: "Means"

    def start(self, argv: Sequence[str], cwd: str, launch: Launch) -> "subprocess.Popen[bytes]":
        """Have `launch` start a program inside; it gets the command line that does.

        It may run in another thread, while this one waits.

        Raises:
            OSError: the program, the folder or the confinement cannot be used; nothing runs.
        """
        return self.means.start(argv, cwd, launch, self.writable, network=self.network)

    def denied(self, output: Sequence[bytes], cwd: str) -> "tuple[Denial, ...]":
        """What a command was refused, by the streams that it left; see `confine_denials`."""
        from dsh_acp.tools import confine_denials

        return confine_denials.find(output, cwd, self.writable, network=self.network)


class Means(Protocol):
    """A way to confine."""

    @property
    def name(self) -> str: ...

    @property
    def limits(self) -> str:
        """What it does not enforce, as a clause; `""` when that is nothing."""
        ...

    def start(
        self,
        argv: Sequence[str],
        cwd: str,
        launch: Launch,
        writable: Sequence[str],
        *,
        network: bool,
    ) -> "subprocess.Popen[bytes]":
        """See `Sandbox.start`."""
        ...


def told(denied: Sequence[str], more: Sequence[str] = ()) -> list[str]:
    """The lines that tell the model of `denied`, `more` lines, and how it may ask for more."""
    lines = [f"[sandbox: {kind} access denied under workspace-write mode]" for kind in denied]
    lines += more
    return [*lines, _ESCALATE] if lines else []
