"""The tables of a catalog file, and what each of their keys may hold.

Every key is optional, so that a user's file gives only what differs; what has to be there in the
end is `catalog`'s business. Messages never repeat a value: people paste keys into the wrong place.
"""

import math
import re
from decimal import Decimal
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from aegish_dist.core.cost import Price, Rate
from aegish_dist.core.limits import Limits
from aegish_dist.core.model import WireFormat

_PROVIDER = r"[a-z0-9][a-z0-9._-]*"
_SEGMENT = r"[A-Za-z0-9~@][A-Za-z0-9._:@+-]*"
_MODEL_ID = re.compile(rf"{_PROVIDER}(?:/{_SEGMENT})+")
# Upper case only: some providers' keys would pass for lower-case names.
_ENVIRONMENT_VARIABLE = re.compile(r"(?:[A-Z][A-Z0-9_]*)?")
MAX_ID_LENGTH = 200


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
    problem = "must be an http or https URL with a host and without user, query or fragment"
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError(problem) from None
    if not valid or "@" in parts.netloc or parts.query or parts.fragment or re.search(r"\s", url):
        raise ValueError(problem)
    return url.rstrip("/")


def _model_id(text: str) -> str:
    if not is_model_id(text):
        raise ValueError("must have the form provider/model")
    return text


def _variable_name(text: str) -> str:
    if not _ENVIRONMENT_VARIABLE.fullmatch(text):
        raise ValueError("must be the name of an environment variable in upper case, not a key")
    return text


def _exact(value: object) -> object:
    return Decimal(value) if type(value) is int else value


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


Usd = Annotated[Decimal, BeforeValidator(_exact), Field(ge=0, le=1_000_000)]
BaseUrl = Annotated[str, AfterValidator(api_root)]
ModelId = Annotated[str, AfterValidator(_model_id)]
MaxInFlight = Annotated[int, Field(ge=1, le=10_000)]


def _plain(value: object) -> object:
    return float(value) if type(value) in (int, Decimal) else value  # type: ignore[arg-type]


PerMinute = Annotated[float, BeforeValidator(_plain), Field(gt=0, le=1e9)]


class _Table(BaseModel):
    """Every key is optional: a user's file gives only what differs."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    def overlaid(self, over: Self) -> Self:
        """Return this table with the keys that the other one gives."""
        return self.model_copy(update={key: getattr(over, key) for key in over.model_fields_set})


class PriceTable(_Table):
    """A price override: token prices, or a flat one."""

    input: Usd | None = None
    output: Usd | None = None
    cache_read: Usd | None = None
    cache_write: Usd | None = None
    per_call: Usd | None = None

    @model_validator(mode="after")
    def _tokens_or_flat(self) -> Self:
        flat = self.model_fields_set == {"per_call"}
        if not flat and (self.per_call is not None or None in (self.input, self.output)):
            raise ValueError("give both input and output, or per_call alone")
        return self

    def price(self) -> Price:
        """The same as the core's record."""
        return Price(
            input=Rate(self.input or Decimal(0)),
            output=Rate(self.output or Decimal(0)),
            cache_read=None if self.cache_read is None else Rate(self.cache_read),
            cache_write=None if self.cache_write is None else Rate(self.cache_write),
            per_call=self.per_call,
        )


class SharedTable(_Table):
    """`[providers.NAME.shared]`: limits over all models of a provider together."""

    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    max_in_flight: MaxInFlight | None = None

    def limits(self) -> Limits:
        """The same as the core's record."""
        return Limits(self.requests_per_minute, self.tokens_per_minute, self.max_in_flight)


class ProviderTable(_Table):
    """`[providers.NAME]`."""

    wire: Annotated[WireFormat, Field(strict=False)] = WireFormat.OPENAI
    base_url: BaseUrl = ""
    key_variable: Annotated[str, AfterValidator(_variable_name)] = ""
    max_in_flight: MaxInFlight | None = None
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    shared: SharedTable = SharedTable()
    genai_prices: str = ""
    notes: str = ""


class ModelTable(_Table):
    """`[[models]]`."""

    id: ModelId
    name: Annotated[str, Field(min_length=1)] | None = None
    default: bool = False
    reference: bool = False
    base_url: BaseUrl = ""
    max_in_flight: MaxInFlight | None = None
    requests_per_minute: PerMinute | None = None
    tokens_per_minute: PerMinute | None = None
    price: PriceTable | None = None
    parameters: Annotated[dict[str, Any], AfterValidator(_as_json)] = {}
    drop_parameters: list[str] = []
    simulated: bool = False
    notes: str = ""


class CatalogFile(_Table):
    """One file."""

    providers: dict[Annotated[str, Field(pattern=f"^{_PROVIDER}$")], ProviderTable] = {}
    models: list[ModelTable] = []
