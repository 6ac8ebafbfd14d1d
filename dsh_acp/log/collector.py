"""The garbage collector, out of the way of work that makes many objects and no cycles."""

from collections.abc import Generator
from contextlib import contextmanager
import gc
from typing import Final

LONG: Final = 20_000
"""Events of a log that are worth a collection of their own; it takes a tenth of a second then."""


@contextmanager
def collector_paused() -> Generator[None]:
    """No collection in this block. Reading a long log takes a third longer with them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def collect_after(events: int) -> None:
    """Free what a log of so many events leaves behind when it is not needed any more.

    Events are no containers to the collector, so that it counts few objects where there is much
    memory, and would come late.
    """
    if events >= LONG:
        gc.collect()
