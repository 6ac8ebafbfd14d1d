"""Which function plays which step."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from dsh_acp.snapshot.play import Move, Player
from dsh_acp.snapshot.steps import Step

S = TypeVar("S", bound=Step)


class Moves(dict[type[Step], Move]):
    """A table that is filled by decorating functions: `@move(steps.Prompt)`."""

    def __call__(self, kind: type[S]) -> Callable[[Callable[[Player, S], Awaitable[None]]], Move]:
        """The function below plays this kind of step."""

        def register(function: Callable[[Player, S], Awaitable[None]]) -> Move:
            self[kind] = function
            return function

        return register
