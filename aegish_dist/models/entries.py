"""The entries of a catalog file: every key that a provider or a model may have, and its limits.

Every key is optional, so that a user's file gives only what differs; `catalog_file` checks what has
to be there in the end. Messages never repeat a value: people paste keys into the wrong place.
"""

import math
import re
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from aegish_dist.core.addresses import host_of, is_metadata, origin
from aegish_dist.core.cost import Price, Rate
from aegish_dist.core.limits import Limits
from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.wire import WireFormat
from aegish_dist.errors import InputError

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
    """Return the provider of a model id."""
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
    """Input tokens."""
    output: Usd | None = None
    cache_read: Usd | None = None
    """Input tokens read from a cache; as `input` when None."""
    cache_write: Usd | None = None
    """Input tokens written to a cache; as `input` when None."""
    cache_write_1h: Usd | None = None
    """Those kept for an hour; as `cache_write` when None."""
    per_call: Usd | None = None
    """USD per call, in place of all others."""

    def __post_init__(self) -> None:
        """Refuse an amount out of range, and half a price."""
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
        """Return the core's record."""
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
    tokens_per_minute: PerMinute | None = None
    """Input and output tokens of the calls begun."""
    max_in_flight: MaxInFlight | None = None

    def limits(self) -> Limits:
        """Return the core's record."""
        return Limits(self.requests_per_minute, self.tokens_per_minute, self.max_in_flight)


class _CalledEntry(LimitsEntry, frozen=True, kw_only=True):
    """Keys of providers and models alike; a model without a value takes its provider's."""

    base_url: str = ""
    """Root of the API, without a trailing slash."""
    plain_http: bool = False
    """Whether the key may go unencrypted to a host other than this machine."""
    max_tokens_field: MaxTokensField | None = None
    """Name of the field that bounds the output in OpenAI's wire format; None: by the host."""
    batch_share: Share | None = None
    """Cost of a batched request as a share of the price of a call; 0: batches are not taken."""
    notes: str = ""

    def __post_init__(self) -> None:
        """Check the share, and check and normalise a base URL that is given."""
        share = self.batch_share
        if isinstance(share, Decimal) and not (share.is_finite() and 0 <= share <= 1):
            raise InputError("must be from 0 to 1", field="batch_share")
        if self.base_url:
            try:
                force_setattr(self, "base_url", api_root(self.base_url))
            except ValueError as error:
                raise InputError(str(error), field="base_url") from None


class ProviderEntry(_CalledEntry, frozen=True, kw_only=True):
    """`[providers.NAME]`."""

    wire: WireFormat = WireFormat.OPENAI
    key_variable: str = ""
    """Environment variable that holds the key; empty when no key is needed."""
    shared: LimitsEntry = LimitsEntry()
    """Limits over all its models together, where the others hold for each of them."""
    cache_from_tokens: Tokens = 0
    genai_prices: str = ""
    """Its name in genai-prices; the same name when empty."""

    def __post_init__(self) -> None:
        """Refuse a key in place of the name of its variable."""
        super().__post_init__()
        if not _ENVIRONMENT_VARIABLE.fullmatch(self.key_variable):
            problem = "must be the name of an environment variable in upper case, not a key"
            raise InputError(problem, field="key_variable")
        if self.key_variable.startswith(RESERVED_PREFIX):
            problem = f"must not begin with {RESERVED_PREFIX}: that is a setting of this program"
            raise InputError(problem, field="key_variable")


class ModelEntry(_CalledEntry, frozen=True, kw_only=True):
    """`[[models]]`."""

    id: str
    name: Annotated[str, Meta(min_length=1)] | None = None
    """The model's name in requests; the id without its provider when None."""
    default: bool = False
    reference: bool = False
    price: PriceEntry | None = None
    parameters: dict[str, Any] = {}
    drop_parameters: list[str] = []
    """Fields of the request body that the model refuses."""
    cache_from_tokens: Tokens | None = None
    """Prompts shorter than this are not cached; as for its provider when None."""
    takes_temperature: bool = True
    retires: date | None = None
    """From this day on the provider answers no more; None while none is announced."""
    simulated: bool = False

    def __post_init__(self) -> None:
        """Check the id, and give the parameters the form that they have in requests."""
        super().__post_init__()
        if not is_model_id(self.id):
            raise InputError("must have the form provider/model", field="id")
        try:
            force_setattr(self, "parameters", _as_json(self.parameters))
        except ValueError as error:
            raise InputError(str(error), field="parameters") from None

    def retired(self, day: date) -> bool:
        """Whether the provider has ended it by a day."""
        return self.retires is not None and self.retires <= day

    def takes(self, spec: ModelSpec, parameters: CallParameters) -> bool:
        """Whether the model takes these parameters, as far as the catalog knows."""
        # A null among the model's own parameters removes the field, a value replaces it.
        return (
            self.takes_temperature
            or parameters.temperature is None
            or spec.parameters.get("temperature", 0) is None
        )
