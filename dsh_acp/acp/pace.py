"""How often streamed text becomes a frame.

A frame per token can outrun an editor that redraws for each. The first piece and any stream at a
human pace go out at once; only a burst is gathered, for a time that nobody sees.
"""

import time
from typing import Final

import anyio

_BURST: Final = 24
"""Frames that may go out within one window without a pause."""

_WINDOW_S: Final = 0.1
_GATHER_S: Final = 0.012


class Pace:
    """Counts the frames of streamed text of one session."""

    def __init__(self) -> None:
        self._since = 0.0
        self._count = 0

    async def after_chunks(self) -> None:
        """Pause, if there were many batches lately, while more is gathered."""
        if not self.allows():
            await anyio.sleep(_GATHER_S)

    def allows(self) -> bool:
        """Count a frame; whether it may go out without a pause."""
        now = time.monotonic()
        if now - self._since > _WINDOW_S:
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= _BURST
