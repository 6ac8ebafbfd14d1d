"""The request header: canonical form, text, equality, fold.

In canonical form "empty" is always absent: there is one representation of "no system prompt".
Key order is `config, adapterDefaults, system, tools, messagePrefix, messageSuffix`. The last two
frame the derived messages of a request; this program keeps them, the harness whose format this is
drops them.
"""

from collections.abc import Iterable
from typing import Any, Final, Protocol, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from dsh_acp import jsontext
from dsh_acp.messages import CallConfig, EpochHeader

_header: Final = msgspec.json.Decoder(EpochHeader)
_loose: Final = msgspec.json.Decoder(dict[str, Raw])


def decode(text: bytes) -> EpochHeader:
    """The canonical header of a snapshot's `header` value.

    Keys of other vintages are dropped. Recorded fixtures replace `tools` by a placeholder string
    such as `{{tools}}`; it stands for a list that the fixture does not hold, and reads as absent.

    Raises:
        msgspec.ValidationError: `text` is not a header.
    """
    try:
        return canonical(jsontext.decode(text, _header))
    except msgspec.ValidationError:
        fields = jsontext.decode(text, _loose)
        if not bytes(fields.get("tools", b"")).startswith(b'"{{'):
            raise
        del fields["tools"]
        return canonical(jsontext.decode(jsontext.encode(fields), _header))


def canonical(header: EpochHeader) -> EpochHeader:
    """`header` with everything empty made absent, and whole numbers as JSON integers."""
    defaults = header.adapter_defaults
    if not isinstance(defaults, UnsetType):
        defaults = {
            key: True for key in ("reasoningEffort", "maxTokens") if defaults.get(key) is True
        }
    return EpochHeader(
        config=_canonical_config(header.config),
        adapter_defaults=defaults or UNSET,
        system=header.system or UNSET,
        tools=header.tools or UNSET,
        message_prefix=header.message_prefix or UNSET,
        message_suffix=header.message_suffix or UNSET,
    )


def _canonical_config(config: CallConfig) -> CallConfig:
    temperature = config.temperature
    if isinstance(temperature, float) and temperature.is_integer():
        return msgspec.structs.replace(config, temperature=int(temperature))
    return config


def encode(header: EpochHeader) -> bytes:
    """The canonical text; two headers are equal when theirs are."""
    return jsontext.encode(canonical(header))


def equal(a: EpochHeader | None, b: EpochHeader | None) -> bool:
    """Whether no request could tell the two apart; the order of tools counts."""
    if a is None or b is None:
        return a is b
    # As a rule nothing changed, and that is seen without encoding anything.
    return a == b or first_difference(a, b) is None


def first_difference(a: EpochHeader, b: EpochHeader) -> str | None:
    """The first field that differs, by its name on disk."""
    for name in ("provider", "model", "reasoning_effort", "temperature", "max_tokens", "stop"):
        if getattr(a.config, name) != getattr(b.config, name):
            return {"reasoning_effort": "reasoningEffort", "max_tokens": "maxTokens"}.get(
                name, name
            )
    left, right = canonical(a), canonical(b)
    if left.adapter_defaults != right.adapter_defaults:
        return "adapterDefaults"
    if left.system != right.system:
        return "system"
    if _texts(left.tools) != _texts(right.tools):
        return "tools"
    if _texts(left.message_prefix) != _texts(right.message_prefix):
        return "messagePrefix"
    if _texts(left.message_suffix) != _texts(right.message_suffix):
        return "messageSuffix"
    return None


def _texts(values: Any) -> bytes:
    return b"" if isinstance(values, UnsetType) else jsontext.encode(values)


class _Payloaded(Protocol):
    @property
    def type(self) -> str: ...
    @property
    def payload(self) -> Any: ...


def fold(events: Iterable[_Payloaded], start: EpochHeader | None = None) -> EpochHeader | None:
    """The header in force after `events`: the last snapshot's, else `start`."""
    found = start
    for event in events:
        if event.type == "request/header":
            found = cast(EpochHeader | None, getattr(event.payload, "header", None)) or found
    return found
