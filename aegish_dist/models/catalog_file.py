"""Catalog files: TOML in, the entries of the packaged file and a user's out, the latter on top.

A user's entry replaces key by key, so every key is optional, and what has to be there is checked in
the end. Messages never repeat a value: people paste keys into the wrong place.
"""

import math
import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from aegish_dist.core.model import CallParameters, Limits, ModelSpec, Price, Rate, WireFormat
from aegish_dist.core.secrets import host_of, is_metadata, origin
from aegish_dist.errors import CatalogError, InputError
from aegish_dist.inputs.checking import checked, refuse
from aegish_dist.inputs.documents import parse_toml, read_text

_PROVIDER = r"[a-z0-9][a-z0-9._-]*"
_SEGMENT = r"[A-Za-z0-9~@][A-Za-z0-9._:@+-]*"
_PROVIDER_NAME = re.compile(_PROVIDER)
_MODEL_ID = re.compile(rf"{_PROVIDER}(?:/{_SEGMENT})+")
# Upper case only: some providers' keys would pass for lower-case names.
_ENVIRONMENT_VARIABLE = re.compile(r"(?:[A-Z][A-Z0-9_]*)?")
RESERVED_PREFIX = "AEGISH_DIST_"  # of this program: their passwords are sent to no provider
MAX_ID_LENGTH = 200
MAX_PRICE_USD = 1_000_000


def is_model_id(text: str) -> bool:
    """Whether the text has the form PROVIDER/MODEL; segments of dots alone are refused."""
    return len(text) <= MAX_ID_LENGTH and _MODEL_ID.fullmatch(text) is not None


def provider_name(model_id: str) -> str:
    return model_id.partition("/")[0]


def api_root(url: str) -> str:
    """Return a base URL without its trailing slash; a ValueError does not repeat it."""
    if origin(url) is None:
        raise ValueError(
            "must be an http or https URL in ASCII with a host and without user, query or fragment"
        )
    if is_metadata(host_of(url)):
        raise ValueError("must not be a link-local or metadata address")
    return url.rstrip("/")


def _as_json(value: object) -> Any:
    """Return a value as a request body holds it: TOML's fractions are read as Decimal."""
    match value:
        case Decimal() if math.isfinite(value):
            return float(value)
        case dict():
            return {key: _as_json(item) for key, item in value.items()}
        case list():
            return [_as_json(item) for item in value]
        case str() | int():
            return value
    raise ValueError("dates, times, inf and nan have no JSON form")


Usd = Annotated[int, Meta(ge=0, le=MAX_PRICE_USD)] | Decimal
MaxInFlight = Annotated[int, Meta(ge=1, le=10_000)]
Tokens = Annotated[int, Meta(ge=0, le=10_000_000)]
MaxTokensField = Literal["max_tokens", "max_completion_tokens"]
PerMinute = Annotated[float, Meta(gt=0, le=1e9)]
Share = Annotated[int, Meta(ge=0, le=1)] | Decimal


class PriceEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`price` of a model: USD per million tokens, or one price per call."""

    input: Usd | None = None
    output: Usd | None = None
    cache_read: Usd | None = None  # as `input` when None
    cache_write: Usd | None = None  # as `input` when None
    cache_write_1h: Usd | None = None  # kept for an hour; as `cache_write` when None
    per_call: Usd | None = None  # in place of all others

    def __post_init__(self) -> None:
        for key in self.__struct_fields__:
            value = getattr(self, key)
            if isinstance(value, Decimal) and not (
                value.is_finite() and 0 <= value <= MAX_PRICE_USD
            ):
                raise InputError(f"must be from 0 to {MAX_PRICE_USD:,}", field=key)
        given = {key for key in self.__struct_fields__ if getattr(self, key) is not None}
        flat = given == {"per_call"}
        if not flat and (self.per_call is not None or None in (self.input, self.output)):
            raise ValueError("give both input and output, or per_call alone")

    def price(self) -> Price:
        return Price(
            input=Rate(Decimal(self.input or 0)),
            output=Rate(Decimal(self.output or 0)),
            cache_read=_rate(self.cache_read),
            cache_write=_rate(self.cache_write),
            cache_write_1h=_rate(self.cache_write_1h),
            per_call=None if self.per_call is None else Decimal(self.per_call),
        )


def _rate(usd: int | Decimal | None) -> Rate | None:
    return None if usd is None else Rate(Decimal(usd))


class LimitsEntry(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits over the whole fleet; `[providers.NAME.shared]` has them over all models together."""

    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None  # input and output, of the calls begun
    max_in_flight: MaxInFlight | None = None

    def limits(self) -> Limits:
        return Limits(self.requests_per_minute, self.tokens_per_minute, self.max_in_flight)


class _CalledEntry(LimitsEntry, frozen=True, kw_only=True):
    """Keys of providers and models alike; a model without a value takes its provider's."""

    base_url: str = ""  # without a trailing slash
    plain_http: bool = False  # the key may go unencrypted to other machines
    max_tokens_field: MaxTokensField | None = None  # for OpenAI's wire format; None: by the host
    batch_share: Share | None = None  # of the price of a call; 0: no batches
    notes: str = ""

    def __post_init__(self) -> None:
        share = self.batch_share
        if isinstance(share, Decimal) and not (share.is_finite() and 0 <= share <= 1):
            raise InputError("must be from 0 to 1", field="batch_share")
        if self.base_url:
            try:
                force_setattr(self, "base_url", api_root(self.base_url))
            except ValueError as error:
                raise InputError(str(error), field="base_url") from None


class ProviderEntry(_CalledEntry, frozen=True, kw_only=True):
    wire: WireFormat = WireFormat.OPENAI
    key_variable: str = ""  # empty when no key is needed
    shared: LimitsEntry = LimitsEntry()  # over all its models together
    cache_from_tokens: Tokens = 0
    genai_prices: str = ""  # its name there; empty: the same

    def __post_init__(self) -> None:
        super().__post_init__()
        named = _ENVIRONMENT_VARIABLE.fullmatch(self.key_variable)
        form = "must be the name of an environment variable in upper case, not a key"
        ours = f"must not begin with {RESERVED_PREFIX}: that is a setting of this program"
        refuse(
            (not named, "key_variable", form),
            (self.key_variable.startswith(RESERVED_PREFIX), "key_variable", ours),
        )


class ModelEntry(_CalledEntry, frozen=True, kw_only=True):
    id: str
    name: Annotated[str, Meta(min_length=1)] | None = None
    """In requests; None: the id without its provider."""
    default: bool = False
    reference: bool = False
    price: PriceEntry | None = None
    parameters: dict[str, Any] = {}
    drop_parameters: list[str] = []  # fields of the request body that the model refuses
    cache_from_tokens: Tokens | None = None  # None: as for its provider
    takes_temperature: bool = True
    retires: date | None = None  # answers end; None: none announced
    simulated: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_model_id(self.id):
            raise InputError("must have the form provider/model", field="id")
        try:
            force_setattr(self, "parameters", _as_json(self.parameters))
        except ValueError as error:
            raise InputError(str(error), field="parameters") from None

    def retired(self, day: date) -> bool:
        return self.retires is not None and self.retires <= day

    def takes(self, spec: ModelSpec, parameters: CallParameters) -> bool:
        """Whether the model takes these parameters, as far as the catalog knows."""
        # A null among the model's own parameters removes the field, a value replaces it.
        return (
            self.takes_temperature
            or parameters.temperature is None
            or spec.parameters.get("temperature", 0) is None
        )


MAX_FILE_BYTES = 4 * 2**20
PACKAGED = "packaged catalog"
Keys = Mapping[str, Any]  # those a table gives, as TOML holds them
Entry = TypeVar("Entry", bound=ModelEntry | ProviderEntry)


_Tables = tuple[dict[str, Keys], dict[str, Keys]]
"""Providers by name and models by id of one file, with no more than the keys given."""


def read_entries(path: Path | None) -> tuple[dict[str, ProviderEntry], dict[str, ModelEntry]]:
    """Read the packaged catalog and lay the user's over it, if there is one.

    Each provider but the baselines has a base URL; models, in file order, have known providers.
    """
    source = PACKAGED if path is None else str(path)
    base = _tables(None)
    over: _Tables = ({}, {}) if path is None else _tables(path)
    providers = _overlaid(base[0], over[0], ProviderEntry)
    models = _overlaid(base[1], over[1], ModelEntry)
    for name, provider in providers.items():
        if provider.wire.http is not None and not provider.base_url:
            raise CatalogError(f"{source}: [providers.{name}]: key 'base_url' is missing")
    for model_id in models:
        name = provider_name(model_id)
        if name not in providers:
            raise CatalogError(
                f"{source}: [[models]] '{model_id}': key 'id': unknown provider '{name}'; "
                f"add a table [providers.{name}]"
            )
    return providers, models


def _overlaid(
    base: Mapping[str, Keys], over: Mapping[str, Keys], kind: type[Entry]
) -> dict[str, Entry]:
    return {
        name: _entry({**base.get(name, {}), **over.get(name, {})}, kind, name)
        for name in {**base, **over}
    }


class _Top(Struct, forbid_unknown_fields=True):
    """The top level; its tables are checked one by one, which names them in messages."""

    providers: dict[str, Any] = {}
    models: list[Any] = []


def _tables(path: Path | None) -> _Tables:
    try:
        if path is None:
            text = files(__package__).joinpath("catalog.toml").read_text("utf-8")
        else:
            text = read_text(path, MAX_FILE_BYTES)
        top = checked(parse_toml(text, parse_float=Decimal), _Top)
        for name, keys in top.providers.items():
            if not _PROVIDER_NAME.fullmatch(name):
                allowed = "lower-case letters, digits, '.', '_' and '-'"
                raise InputError(f"[providers.{name}]: must be of {allowed}")
            _entry(keys, ProviderEntry, f"[providers.{name}]")
        return top.providers, _models(top.models)
    except InputError as error:
        where = f"top level: {error}" if error.field else str(error)
        raise CatalogError(f"{PACKAGED if path is None else path}: {where}") from None


def _models(tables: list[Any]) -> dict[str, Keys]:
    numbers: dict[str, int] = {}
    for number, keys in enumerate(tables, start=1):
        model = keys.get("id") if isinstance(keys, dict) else None
        known = f" ({model})" if isinstance(model, str) and is_model_id(model) else ""
        _entry(keys, ModelEntry, f"[[models]] entry {number}{known}")
        first = numbers.setdefault(keys["id"], number)
        if first != number:
            clash = f"'{model}' is already entry {first}; merge the two"
            raise InputError(f"[[models]] entry {number}: key 'id': {clash}")
    return {keys["id"]: keys for keys in tables}


def _entry(keys: object, kind: type[Entry], heading: str) -> Entry:
    try:
        # Decimals stay what they are; otherwise a text would do for a price.
        return checked(keys, kind, exact=(Decimal,))
    except InputError as error:
        raise InputError(f"{heading}: {error}") from None
