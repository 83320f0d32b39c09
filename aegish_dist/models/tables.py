"""The tables of a catalog file, and what each of their keys may hold.

Every key is optional, so that a user's file gives only what differs; what has to be there in the
end is `catalog`'s business. Messages never repeat a value: people paste keys into the wrong place.
"""

import math
import re
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from aegish_dist.core.addresses import host_of, is_metadata, origin
from aegish_dist.core.checking import WrongValueError
from aegish_dist.core.cost import Price, Rate
from aegish_dist.core.limits import Limits
from aegish_dist.core.wire import WireFormat

_PROVIDER = r"[a-z0-9][a-z0-9._-]*"
_SEGMENT = r"[A-Za-z0-9~@][A-Za-z0-9._:@+-]*"
_PROVIDER_NAME = re.compile(_PROVIDER)
_MODEL_ID = re.compile(rf"{_PROVIDER}(?:/{_SEGMENT})+")
# Upper case only: some providers' keys would pass for lower-case names.
_ENVIRONMENT_VARIABLE = re.compile(r"(?:[A-Z][A-Z0-9_]*)?")
RESERVED_PREFIX = "AEGISH_DIST_"
"""Variables of this program hold addresses with passwords, and are sent to no provider."""
MAX_ID_LENGTH = 200
MAX_PRICE_USD = 1_000_000


def is_provider_name(text: str) -> bool:
    """Whether the text can name a provider."""
    return _PROVIDER_NAME.fullmatch(text) is not None


def is_model_id(text: str) -> bool:
    """Whether the text has the form PROVIDER/MODEL; segments of dots alone are refused."""
    return len(text) <= MAX_ID_LENGTH and _MODEL_ID.fullmatch(text) is not None


def provider_name(model_id: str) -> str:
    """The provider of a model id."""
    return model_id.partition("/")[0]


def api_root(url: str) -> str:
    """Return a base URL without its trailing slash.

    Raises:
        ValueError: It is not one; the message does not repeat it.
    """
    if origin(url) is None:
        raise ValueError(
            "must be an http or https URL in ASCII with a host and without user, query or fragment"
        )
    if is_metadata(host_of(url)):
        raise ValueError("must not be a link-local or metadata address")
    return url.rstrip("/")


def _as_json(value: object) -> Any:
    """TOML floats are read as Decimal, for the prices' sake; a request body wants them back."""
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


class _Table(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Every key is optional: a user's file gives only what differs."""


class PriceTable(_Table, frozen=True):
    """A price override: token prices, or a flat one."""

    input: Usd | None = None
    output: Usd | None = None
    cache_read: Usd | None = None
    cache_write: Usd | None = None
    cache_write_1h: Usd | None = None
    per_call: Usd | None = None

    def __post_init__(self) -> None:
        """Refuse what is no price, and half a price."""
        for key in self.__struct_fields__:
            value = getattr(self, key)
            if isinstance(value, Decimal) and not (
                value.is_finite() and 0 <= value <= MAX_PRICE_USD
            ):
                raise WrongValueError(key, f"must be from 0 to {MAX_PRICE_USD:,}")
        given = {key for key in self.__struct_fields__ if getattr(self, key) is not None}
        flat = given == {"per_call"}
        if not flat and (self.per_call is not None or None in (self.input, self.output)):
            raise ValueError("give both input and output, or per_call alone")

    def price(self) -> Price:
        """The same as the core's record."""
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


class SharedTable(_Table, frozen=True):
    """`[providers.NAME.shared]`: limits over all models of a provider together."""

    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    max_in_flight: MaxInFlight | None = None

    def limits(self) -> Limits:
        """The same as the core's record."""
        return Limits(self.requests_per_minute, self.tokens_per_minute, self.max_in_flight)


class ProviderTable(_Table, frozen=True):
    """`[providers.NAME]`."""

    wire: WireFormat = WireFormat.OPENAI
    base_url: str = ""
    key_variable: str = ""
    plain_http: bool = False
    max_in_flight: MaxInFlight | None = None
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    shared: SharedTable = SharedTable()
    max_tokens_field: MaxTokensField | None = None
    cache_from_tokens: Tokens = 0
    genai_prices: str = ""
    notes: str = ""

    def __post_init__(self) -> None:
        """Check what its type alone does not tell."""
        _check_base_url(self)
        if not _ENVIRONMENT_VARIABLE.fullmatch(self.key_variable):
            problem = "must be the name of an environment variable in upper case, not a key"
            raise WrongValueError("key_variable", problem)
        if self.key_variable.startswith(RESERVED_PREFIX):
            problem = f"must not begin with {RESERVED_PREFIX}: that is a setting of this program"
            raise WrongValueError("key_variable", problem)


class ModelTable(_Table, frozen=True):
    """`[[models]]`."""

    id: str
    name: Annotated[str, Meta(min_length=1)] | None = None
    default: bool = False
    reference: bool = False
    base_url: str = ""
    plain_http: bool = False
    max_in_flight: MaxInFlight | None = None
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    price: PriceTable | None = None
    parameters: dict[str, Any] = {}
    drop_parameters: list[str] = []
    max_tokens_field: MaxTokensField | None = None
    cache_from_tokens: Tokens | None = None
    takes_temperature: bool = True
    retires: date | None = None
    simulated: bool = False
    notes: str = ""

    def __post_init__(self) -> None:
        """Check what its type alone does not tell."""
        if not is_model_id(self.id):
            raise WrongValueError("id", "must have the form provider/model")
        _check_base_url(self)
        try:
            force_setattr(self, "parameters", _as_json(self.parameters))
        except ValueError as error:
            raise WrongValueError("parameters", error) from None


def _check_base_url(table: ProviderTable | ModelTable) -> None:
    """Check and normalise a base URL that is given."""
    if table.base_url:
        try:
            force_setattr(table, "base_url", api_root(table.base_url))
        except ValueError as error:
            raise WrongValueError("base_url", error) from None
