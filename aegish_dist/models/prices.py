"""List prices, and from them the estimated tokens and cost of a run before money is spent.

Prices come offline from the snapshot in genai-prices. It takes 0.15 s to import, half the time of a
command, so functions import it, and prices that were found are kept in a file for a day. Its
updater is never started: a run's prices depend on the installed version and the date, not on the
network.

An estimate knows no tokenizer and no hidden reasoning: reasoning models and step-by-step prompts
write several times as much. The cost with a cached prompt stands beside.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta
from msgspec.structs import asdict

from aegish_dist import __version__
from aegish_dist.core.model import ModelSpec, Price, Rate, WireFormat, cost_usd, is_amount
from aegish_dist.core.run import COMMAND_SLOT, Prompt
from aegish_dist.core.text import JsonObject, known
from aegish_dist.core.verdict import Usage
from aegish_dist.errors import InputError, OutputError
from aegish_dist.files import replacing

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices


MAX_PRICE_USD = 1_000_000
Usd = Annotated[int, Meta(ge=0, le=MAX_PRICE_USD)] | Decimal


class PriceEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`price` of a model: USD per million tokens, one price per call, or per hour of a machine."""

    input: Usd | None = None
    output: Usd | None = None
    cache_read: Usd | None = None  # as `input` when None
    cache_write: Usd | None = None  # as `input` when None
    cache_write_1h: Usd | None = None  # kept for an hour; as `cache_write` when None
    per_call: Usd | None = None  # in place of all others
    per_hour: Usd | None = None  # the same, of the machine that one call keeps busy

    def __post_init__(self) -> None:
        given = known(asdict(self))
        for key, usd in given.items():
            if isinstance(usd, Decimal) and not is_amount(usd, MAX_PRICE_USD):
                raise InputError(f"must be from 0 to {MAX_PRICE_USD:,}", field=key)

        if "per_call" in given or "per_hour" in given:
            complete = len(given) == 1
        else:
            complete = "input" in given and "output" in given

        if not complete:
            raise ValueError("give both input and output, or per_call alone, or per_hour alone")

    def price(self) -> Price:
        prices: JsonObject = {}
        for key, usd in known(asdict(self)).items():
            amount = Decimal(usd)
            prices[key] = amount if key in ("per_call", "per_hour") else Rate(amount)
        return Price(**prices)


HOST_SLOT = "{host}"  # the text after the last colon of the model's name
# Takes the names of provider and model; see `list_price`.
PriceOf = Callable[[str, str], Price | None]


class Remembered(msgspec.Struct):
    """The file of remembered prices, for one price list and day."""

    installed: str  # identity of the price list; see `installed_prices`
    day: str  # in UTC; prices change with dates
    prices: dict[str, Price | None] = {}  # by provider and name; None without a list price


def installed_prices() -> str:
    """Identify the installed price list by its file, without importing it; empty if it has none."""
    package = find_spec("genai_prices")
    if package is None or package.origin is None:
        return ""
    data = Path(package.origin).with_name("data.py")
    try:
        found = data.stat()
    except OSError:
        return ""

    return f"{__version__} {data} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


@contextmanager
def remembered_prices(path: Path | None, at: datetime) -> Iterator[PriceOf]:
    """Give a look-up of list prices that remembers in a file, if it can be read and written."""
    kept = Remembered(installed_prices(), at.astimezone(UTC).date().isoformat())
    if not kept.installed:
        path = None
    if path is not None:
        with suppress(OSError, msgspec.DecodeError, RecursionError):
            before = msgspec.json.decode(path.read_bytes(), type=Remembered)
            if (before.installed, before.day) == (kept.installed, kept.day):
                kept = before

    remembered = len(kept.prices)

    def price_of(provider: str, name: str) -> Price | None:
        key = f"{provider} {name}"
        if key not in kept.prices:
            price = list_price(provider, name, at)
            # Kept for a day, such a price would be wrong for most of it.
            if changes_within_a_day(provider, name):
                return price
            kept.prices[key] = price
        return kept.prices[key]

    yield price_of
    if path is not None and len(kept.prices) > remembered:
        with suppress(OSError, OutputError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as stream:
                stream.write(msgspec.json.encode(kept))


def list_price(provider: str, name: str, at: datetime) -> Price | None:
    """Look up a model's price; None if unknown, or if it cannot be stated per token."""
    model = _find(provider, name)
    if model is None:
        return None
    prices = model.get_prices(at)
    # Free models of routers are listed without any price.
    if not any(prices.__dict__.values()) and name.endswith(":free"):
        return Price(per_call=Decimal(0))
    return _price(prices)


def changes_within_a_day(provider: str, name: str) -> bool:
    """Whether a model's list price depends on the time of day, as off-peak discounts do."""
    from genai_prices.types import StartDateConstraint  # noqa: PLC0415

    model = _find(provider, name)
    if model is None or not isinstance(model.prices, list):
        return False
    constraints = [price.constraint for price in model.prices if price.constraint is not None]
    return not all(isinstance(constraint, StartDateConstraint) for constraint in constraints)


def _find(provider: str, name: str) -> "ModelInfo | None":
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    if HOST_SLOT in provider:
        name, _, host = name.rpartition(":")
        provider = provider.replace(HOST_SLOT, host)

    # By exact id: the snapshot's own search takes every name with "openai" in it for OpenAI.
    for listed in get_snapshot().providers:
        if listed.id == provider:
            return listed.find_model(name)

    return None


def _price(prices: "ModelPrice") -> Price | None:
    if prices.requests_kcount is not None or prices.output_reasoning_mtok is not None:
        return None
    read = _rate(prices.input_mtok)
    written = _rate(prices.output_mtok)
    if read is None or written is None:
        return None
    return Price(
        input=read,
        output=written,
        cache_read=_rate(prices.cache_read_mtok),
        cache_write=_rate(prices.cache_write_mtok),
        cache_write_1h=_rate(prices.cache_write_1h_mtok),
    )


def _rate(listed: "Decimal | TieredPrices | None") -> Rate | None:
    if listed is None:
        return None
    if isinstance(listed, Decimal):
        return Rate(listed)
    return Rate(listed.base, tuple((tier.start, tier.price) for tier in listed.tiers))


CHARACTERS_PER_TOKEN = 4
FRAMING_TOKENS = 10
SERVICE_S = 1.0  # of a call that is priced by the hour, until the first has been timed
ANSWER_TOKENS = 60  # a JSON object with a sentence; recorded models wrote 44 to 91


class ModelEstimate(msgspec.Struct, frozen=True):
    model: str
    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None  # of all calls, without a cache; None when unknown
    # If all calls but the first read the system text in a cache; else equal to `cost_usd`.
    cached_cost_usd: Decimal | None


class RunEstimate(msgspec.Struct, frozen=True):
    models: tuple[ModelEstimate, ...]  # in the order asked for

    @property
    def calls(self) -> int:
        return sum(model.calls for model in self.models)

    @property
    def input_tokens(self) -> int:
        return sum(model.input_tokens for model in self.models)

    @property
    def output_tokens(self) -> int:
        return sum(model.output_tokens for model in self.models)

    @property
    def unpriced(self) -> tuple[str, ...]:
        return tuple(model.model for model in self.models if model.cost_usd is None)

    @property
    def known_cost_usd(self) -> Decimal:
        """Cost of the priced models: a lower bound when others are unpriced."""
        return _known_sum(model.cost_usd for model in self.models)

    @property
    def cached_cost_usd(self) -> Decimal:
        return _known_sum(model.cached_cost_usd for model in self.models)

    @property
    def cost_usd(self) -> Decimal | None:
        """Cost of the run; None when any model is unpriced."""
        if self.unpriced:
            return None
        return self.known_cost_usd


def _known_sum(costs: Iterable[Decimal | None]) -> Decimal:
    return sum((cost for cost in costs if cost is not None), Decimal(0))


def fixed_characters(prompt: Prompt) -> int:
    return len(prompt.system) + len(prompt.template) - len(COMMAND_SLOT)


def input_tokens(characters: int) -> int:
    return -(-characters // CHARACTERS_PER_TOKEN) + FRAMING_TOKENS


def estimate(
    specs: Sequence[ModelSpec],
    prompt_of: Callable[[str], Prompt],
    command_lengths: Iterable[int],
    epochs: int = 1,
) -> RunEstimate:
    """Estimate what each model is asked with its own prompt, `epochs` times every command."""
    lengths = Counter(command_lengths)
    calls: dict[Prompt, Counter[int]] = {}  # by prompt and number of input tokens
    estimates: list[ModelEstimate] = []
    for spec in specs:
        prompt = prompt_of(spec.id)
        if prompt not in calls:
            calls[prompt] = Counter()
            for length, commands in lengths.items():
                tokens = input_tokens(fixed_characters(prompt) + length)
                calls[prompt][tokens] += commands * epochs
        estimates.append(_model_estimate(spec, calls[prompt], prompt))

    return RunEstimate(tuple(estimates))


def _model_estimate(
    spec: ModelSpec,
    calls: Counter[int],
    prompt: Prompt,
) -> ModelEstimate:
    cost = _cost(spec.price, calls)
    if not spec.wire.reads_prompt:
        if spec.wire is WireFormat.BASELINE:
            cost = Decimal(0)
        return ModelEstimate(
            model=spec.id,
            calls=calls.total(),
            input_tokens=0,
            output_tokens=0,
            cost_usd=cost,
            cached_cost_usd=cost,
        )

    prefix = len(prompt.system) // CHARACTERS_PER_TOKEN
    return ModelEstimate(
        model=spec.id,
        calls=calls.total(),
        input_tokens=sum(tokens * count for tokens, count in calls.items()),
        output_tokens=calls.total() * ANSWER_TOKENS,
        cost_usd=cost,
        cached_cost_usd=_cached_cost(spec.price, calls, prefix),
    )


def _cached_cost(
    price: Price | None,
    calls: Counter[int],
    prefix: int,
) -> Decimal | None:
    """Price the calls as if the prefix were cached; the first one pays for writing it."""
    if price is None or price.per_call is not None or price.per_hour is not None:
        return _cost(price, calls)
    if not calls or prefix < price.cache_from_tokens:
        return _cost(price, calls)
    shortest = min(calls)
    writing = Usage(
        input_tokens=shortest,
        output_tokens=ANSWER_TOKENS,
        cache_write_tokens=prefix,
    )
    reading = Usage(
        input_tokens=shortest,
        output_tokens=ANSWER_TOKENS,
        cache_read_tokens=prefix,
    )
    more = (cost_usd(writing, price) or 0) - (cost_usd(reading, price) or 0)
    all_reading = _cost(price, calls, cached=prefix) or Decimal(0)
    return all_reading + more


def _cost(
    price: Price | None,
    calls: Counter[int],
    cached: int = 0,
) -> Decimal | None:
    """Price each size of call by itself: tiers depend on it."""
    if price is None:
        return None
    if price.per_call is not None:
        return price.per_call * calls.total()
    total = Decimal(0)
    for tokens, count in calls.items():
        usage = Usage(tokens, ANSWER_TOKENS, cache_read_tokens=cached)
        total += (cost_usd(usage, price, SERVICE_S) or 0) * count

    return total
