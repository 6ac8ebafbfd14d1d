"""Why a request did not find its predecessor in the provider's cache.

A request extends the one before it unless something in the log says otherwise, so the provider
should have read all of it from its cache. Where it did not, what lies between the two requests is
the explanation.
"""

from collections.abc import Iterator
from typing import Final

from msgspec import Struct, UnsetType

from dsh_acp.log.events import (
    AssistantMessage,
    EndSeed,
    Event,
    Replace,
    RequestHeader,
)
from dsh_acp.messages import EpochHeader, Usage

_KEPT: Final = 0.75
"""Providers cache whole blocks of tokens, so a little is always missed."""
_WORTH_NOTING: Final = 256


class CacheRead(Struct, frozen=True):
    """What one answer's request read from the cache; `drop` explains a lower rate, else empty."""

    prompt: int
    read: int
    drop: str = ""

    @property
    def rate(self) -> float:
        """The part of the prompt that was read from the cache, from 0 to 1."""
        return self.read / self.prompt if self.prompt else 0.0


def changed_fields(before: EpochHeader | None, after: EpochHeader) -> list[str]:
    """The fields in which two headers differ, in words; all that are set when there was none."""
    return list(_changes(before, after))


def _changes(before: EpochHeader | None, after: EpochHeader) -> Iterator[str]:
    config, old = after.config, before.config if before else None
    if old is None or (config.provider, config.model) != (old.provider, old.model):
        yield f"model {config.provider}/{config.model}"
    for name, words in (
        ("reasoning_effort", "effort"),
        ("temperature", "temperature"),
        ("max_tokens", "max tokens"),
        ("stop", "stop words"),
    ):
        value = getattr(config, name)
        if value != getattr(old, name, None) and not (old is None and isinstance(value, UnsetType)):
            yield f"{words} {'unset' if isinstance(value, UnsetType) else value}"
    if (after.system or "") != (before.system or "" if before else ""):
        yield f"system prompt of {len(after.system or ''):,} characters"
    yield from _tool_changes(before, after)
    for name, words in (("message_prefix", "framing before"), ("message_suffix", "framing after")):
        value = getattr(after, name) or ()
        if value != (getattr(before, name, None) or ()):
            count = f"{len(value)} message{'' if len(value) == 1 else 's'}"
            yield f"{words}: {count}" if value else f"no {words}"


def _tool_changes(before: EpochHeader | None, after: EpochHeader) -> Iterator[str]:
    new = {tool.name: tool for tool in after.tools or ()}
    old = {tool.name: tool for tool in (before.tools or ()) if before} if before else {}
    if list(new.items()) == list(old.items()):
        return
    if before is None or not old:
        yield f"{len(new)} tool{'' if len(new) == 1 else 's'}"
        return
    added = [f"+{name}" for name in new if name not in old]
    removed = [f"-{name}" for name in old if name not in new]
    edited = [f"~{name}" for name in new if name in old and new[name] != old[name]]
    yield "tools " + (" ".join([*added, *removed, *edited]) or "in another order")


class Caching:
    """Follows a log and judges each answer's cache read."""

    def __init__(self) -> None:
        self.header: EpochHeader | None = None
        self._prompt = 0
        self._answered_at = 0
        self._causes: list[str] = []

    def feed(self, event: Event) -> CacheRead | None:
        """Take in the next event; what an answer with usage read from the cache."""
        payload = event.payload
        if isinstance(payload, RequestHeader):
            changes = changed_fields(self.header, payload.header) if self.header else []
            if changes:
                self._causes.append(
                    f"header {payload.reason} at #{event.seq}: {', '.join(changes)}"
                )
            self.header = payload.header
        elif isinstance(payload, EndSeed):
            self._causes.append(f"the session was resumed or forked at #{event.seq}")
        elif isinstance(event.surface_op, Replace):
            span = f"#{event.surface_op.start} to #{event.surface_op.end}"
            what = "trimming" if event.type == "tool/result" else "compaction"
            self._causes.append(f"{what} at #{event.seq} replaced {span}")
        elif isinstance(payload, AssistantMessage) and isinstance(payload.usage, Usage):
            return self._answer(event, payload.usage)
        return None

    def _answer(self, event: Event, usage: Usage) -> CacheRead:
        read = usage.cache_read_tokens or 0
        prompt = usage.input_tokens + read + (usage.cache_write_tokens or 0)
        missed = self._prompt - read
        drop = ""
        if read < self._prompt * _KEPT and missed >= _WORTH_NOTING:
            drop = "; ".join(self._causes) or self._unexplained(event)
        self._prompt, self._answered_at, self._causes = prompt, event.time, []
        return CacheRead(prompt, read, drop)

    def _unexplained(self, event: Event) -> str:
        minutes = (event.time - self._answered_at) / 60_000
        return (
            "nothing in the log changed what was sent before; the provider no longer had it"
            f" ({minutes:.0f} min since the last answer)"
        )
