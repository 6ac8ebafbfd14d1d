"""What is known of models: the catalogue in `models.json`, the endpoint's own list, the settings.

Later sources win field by field, and what no source knows stays unknown. Prices and efforts of the
catalogue hold at the vendor's own endpoint only; a gateway has its own.

Why an endpoint's word on vision and hearing does not count: whether images and recordings are sent
decides the bytes of a request, and those must be the same in an audit that asks no endpoint.
Settings can say it.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
import re
from typing import Any, Final, cast

import msgspec
from msgspec import Struct, structs

from dsh_acp import jsontext
from dsh_acp.config import ModelSettings, ProviderSettings
from dsh_acp.llm.provider import AudioForm, ModelInfo, Price

_DATED: Final = re.compile(r"[-@](20\d{6}|20\d\d-\d\d-\d\d|latest)$")


class _Price(Struct, rename="camel", frozen=True):
    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None
    currency: str = "USD"


class Entry(Struct, rename="camel", frozen=True, forbid_unknown_fields=True):
    """One model of the catalogue; see `ModelInfo`. Hidden ones work, but are not offered."""

    id: str
    name: str
    context_window: int | None = None
    max_output: int | None = None
    default_max_output: int | None = None
    vision: bool = False
    efforts: tuple[str, ...] = ()
    default_effort: str | None = None
    price: _Price | None = None
    is_hidden: bool = False
    thinking: str = ""
    audio: bool = False
    audio_form: AudioForm = "object"

    def info(self, id: str) -> ModelInfo:
        """What a caller may know, under the id that was asked for."""
        price = structs.asdict(self.price) if self.price is not None else None
        return ModelInfo(
            id=id,
            name=self.name,
            context_window=self.context_window,
            max_output=self.max_output,
            default_max_output=self.default_max_output,
            vision=self.vision,
            efforts=self.efforts,
            default_effort=self.default_effort,
            price=Price(**price) if price is not None else None,
            audio=self.audio,
            audio_form=self.audio_form,
        )


@cache
def catalogue() -> Mapping[str, Sequence[Entry]]:
    """Every entry by vendor, in the order to offer."""
    text = Path(__file__).with_name("models.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, tuple[Entry, ...]])


def find(id: str, vendor: str | None = None) -> Entry | None:
    """The entry for `id`: exactly, without its date, or without a gateway's prefix."""
    vendors = [vendor] if vendor in catalogue() else list(catalogue())
    bare = id.rpartition("/")[2]
    for name in (id, _DATED.sub("", id), bare, _DATED.sub("", bare)):
        for entry in (entry for key in vendors for entry in catalogue()[cast("str", key)]):
            if entry.id == name:
                return entry
    return None


class Models:
    """The models of one configured provider. `default_efforts` are for those nobody describes.

    Where the wire has no place for recordings nobody `can_hear`, whatever the settings say.
    """

    def __init__(
        self,
        settings: ProviderSettings,
        vendor: str,
        default_efforts: tuple[str, ...] = (),
        default_effort: str | None = None,
        *,
        can_hear: bool = True,
    ) -> None:
        self._settings = settings
        self._vendor = vendor
        self._defaults = (default_efforts, default_effort)
        self._can_hear = can_hear
        self._discovered: dict[str, ModelInfo] = {}
        self._known: dict[str, ModelInfo] = {}
        self._all: tuple[ModelInfo, ...] | None = None
        self._ids: tuple[str, ...] = ()

    def get(self, id: str) -> ModelInfo:
        """What is known of `id`; never an error."""
        known = self._known.get(id)
        if known is None:
            known = self._known[id] = self._merged(id)
        return known

    def all(self) -> tuple[ModelInfo, ...]:
        """The models to offer: of the settings, of the catalogue, and those discovered."""
        if self._all is None:
            self._all = tuple(self._offered())
            offered = (info.id for info in self._all)
            self._ids = tuple(dict.fromkeys([*self._discovered, *offered]))
        return self._all

    def ids(self) -> tuple[str, ...]:
        """Their ids; those that the endpoint itself has named come first."""
        self.all()
        return self._ids

    def _offered(self) -> list[ModelInfo]:
        entries = catalogue().get(self._vendor, ())
        offered = (entry.id for entry in entries if not entry.is_hidden)
        return [
            self.get(id)
            for id in dict.fromkeys([*self._settings.models, *offered, *self._discovered])
        ]

    def discover(self, found: Iterable[ModelInfo]) -> None:
        """Add what the endpoint says of itself."""
        self._discovered.update({info.id: info for info in found})
        self._known.clear()
        self._all = None

    def _merged(self, id: str) -> ModelInfo:
        own = find(id, self._vendor) if self._vendor in catalogue() else None
        if own is not None:
            info = own.info(id)
        else:
            efforts, default = self._defaults
            entry = find(id)
            info = ModelInfo(
                id=id,
                name=id,
                context_window=entry.context_window if entry else None,
                vision=entry.vision if entry else False,
                audio=entry.audio if entry else False,
                audio_form=entry.audio_form if entry else "object",
                efforts=efforts,
                default_effort=default,
            )
        if (found := self._discovered.get(id)) is not None:
            info = _filled(info, found)
        info = _configured(info, self._settings.models.get(id), self._settings.context_window)
        return info if self._can_hear else structs.replace(info, audio=False)


def _filled(info: ModelInfo, found: ModelInfo) -> ModelInfo:
    """What the endpoint says of its own model counts more than the catalogue."""
    return structs.replace(
        info,
        name=info.name if info.name != info.id else found.name,
        context_window=found.context_window or info.context_window,
        max_output=found.max_output or info.max_output,
        efforts=found.efforts or info.efforts,
        price=found.price or info.price,
    )


def _configured(info: ModelInfo, given: ModelSettings | None, window: int | None) -> ModelInfo:
    if given is None:
        return structs.replace(info, context_window=window or info.context_window)
    price = info.price
    if given.price_input is not None and given.price_output is not None:
        price = Price(given.price_input, given.price_output, given.price_cache_read)
    efforts = info.efforts if given.efforts is None else given.efforts
    max_output = given.max_output or info.max_output
    default_max = info.default_max_output
    if default_max and max_output:
        default_max = min(default_max, max_output)
    return structs.replace(
        info,
        context_window=given.context_window or window or info.context_window,
        max_output=max_output,
        default_max_output=min(default_max, max_output)
        if default_max and max_output
        else default_max,
        vision=info.vision if given.vision is None else given.vision,
        audio=info.audio if given.audio is None else given.audio,
        efforts=efforts,
        default_effort=info.default_effort if info.default_effort in efforts else None,
        price=price,
    )


def listed(body: bytes) -> list[ModelInfo]:
    """The models in the answer to `GET /models`, whatever its dialect; `[]` when it is none."""
    try:
        value = jsontext.loads(body)
    except jsontext.DecodeError:
        return []
    if isinstance(value, dict):
        value = cast("dict[str, Any]", value)
        value = value.get("data", value.get("models"))
    if not isinstance(value, list):
        return []
    found = (_listed(item) for item in cast("list[Any]", value))
    return [info for info in found if info is not None]


def _listed(item: Any) -> ModelInfo | None:
    if not isinstance(item, dict):
        return None
    body = cast("dict[str, Any]", item)
    id = body.get("id", body.get("model", body.get("name")))
    if not isinstance(id, str) or not id:
        return None
    name = body.get("display_name", body.get("name"))
    top = _dict(body, "top_provider")
    meta = _dict(body, "meta")
    windows = [body.get(key) for key in ("context_length", "max_model_len", "context_window")]
    windows += [body.get("max_input_tokens"), top.get("context_length"), meta.get("n_ctx")]
    outputs = [body.get("max_output_tokens"), top.get("max_completion_tokens")]
    return ModelInfo(
        id=id,
        name=name if isinstance(name, str) and name else id,
        context_window=_first_count(windows),
        max_output=_first_count(outputs),
        price=_price(_dict(body, "pricing")),
    )


def _dict(body: dict[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _first_count(values: list[Any]) -> int | None:
    counts = (value for value in values if isinstance(value, int) and not isinstance(value, bool))
    return next((value for value in counts if value > 0), None)


def _price(pricing: dict[str, Any]) -> Price | None:
    """Prices for a token as decimal text, as OpenRouter lists them."""

    def million(key: str) -> float | None:
        try:
            return round(float(pricing[key]) * 1_000_000, 6)
        except (KeyError, TypeError, ValueError):
            return None

    given, answered = million("prompt"), million("completion")
    if given is None or answered is None or given < 0 or answered < 0:
        return None
    return Price(given, answered, million("input_cache_read"), million("input_cache_write"))
