"""List prices, offline, from the snapshot that genai-prices carries, remembered for a day.

genai-prices takes 0.15 s to import, half the time of a command: it brings a validation library and
an HTTP client along, and builds the prices of a thousand models to find one. So functions import
it, and the prices that one command has found are kept in a file for the next. Its updater is never
started: a run's prices depend on the installed version and the date, not on the network.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from aegish_dist import __version__
from aegish_dist.core.cost import Price, Rate
from aegish_dist.errors import OutputError
from aegish_dist.files import replacing

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

HOST_SLOT = "{host}"
"""In a provider's name: the text after the last colon of the model's name."""
PriceOf = Callable[[str, str], Price | None]
"""Takes a provider's name in genai-prices and the model's name in requests; see `list_price`."""


class Remembered(msgspec.Struct):
    """The file of remembered prices; used only for the same price list and the same day."""

    installed: str
    """Identity of the price list that was installed; see `installed_prices`."""
    day: str
    """UTC date of the prices, which change with dates."""
    prices: dict[str, Price | None] = {}
    """By provider and name; None for a model without a list price."""


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
    """Give a look-up of list prices that asks the price list only for what the file lacks.

    Args:
        path: The file; None remembers nothing. One that cannot be read or written does no harm.
    """
    kept = Remembered(installed_prices(), at.astimezone(UTC).date().isoformat())
    if not kept.installed:
        path = None
    if path is not None:
        kept.prices = _read(path, kept)
    known = len(kept.prices)

    def price_of(provider: str, name: str) -> Price | None:
        key = f"{provider} {name}"
        if key not in kept.prices:
            price = list_price(provider, name, at)
            if changes_within_a_day(provider, name):
                return price
            kept.prices[key] = price
        return kept.prices[key]

    yield price_of
    if path is not None and len(kept.prices) > known:
        _write(path, kept)


def list_price(provider: str, name: str, at: datetime) -> Price | None:
    """Look up what a model costs.

    Args:
        provider: The provider's name in genai-prices; `{host}` in it is filled in.

    Returns:
        None when the snapshot does not know the model, or knows it at a price that cannot be
        stated per token, such as a fee per request on top.
    """
    model = _find(provider, name)
    if model is None:
        return None
    prices = model.get_prices(at)
    if not any(prices.__dict__.values()) and name.endswith(":free"):
        return Price(per_call=Decimal(0))
    return _price(prices)


def changes_within_a_day(provider: str, name: str) -> bool:
    """Whether a model's list price depends on the time of day, as off-peak discounts do."""
    from genai_prices.types import StartDateConstraint  # noqa: PLC0415

    model = _find(provider, name)
    conditional = model.prices if model and isinstance(model.prices, list) else []
    return any(
        each.constraint is not None and not isinstance(each.constraint, StartDateConstraint)
        for each in conditional
    )


def _find(provider: str, name: str) -> "ModelInfo | None":
    from genai_prices.data_snapshot import get_snapshot  # noqa: PLC0415

    provider, name = _price_list(provider, name)
    # By exact id: the snapshot's own search takes every name with "openai" in it for OpenAI.
    found = next((each for each in get_snapshot().providers if each.id == provider), None)
    return found.find_model(name) if found else None


def _price_list(provider: str, name: str) -> tuple[str, str]:
    if HOST_SLOT not in provider:
        return provider, name
    model, _, host = name.rpartition(":")
    return provider.replace(HOST_SLOT, host), model


def _price(prices: "ModelPrice") -> Price | None:
    if prices.input_mtok is None or prices.output_mtok is None:
        return None
    if prices.requests_kcount is not None or prices.output_reasoning_mtok is not None:
        return None
    return Price(
        input=_rate(prices.input_mtok),
        output=_rate(prices.output_mtok),
        cache_read=None if prices.cache_read_mtok is None else _rate(prices.cache_read_mtok),
        cache_write=None if prices.cache_write_mtok is None else _rate(prices.cache_write_mtok),
        cache_write_1h=(
            None if prices.cache_write_1h_mtok is None else _rate(prices.cache_write_1h_mtok)
        ),
    )


def _rate(listed: "Decimal | TieredPrices") -> Rate:
    if isinstance(listed, Decimal):
        return Rate(listed)
    return Rate(listed.base, tuple((tier.start, tier.price) for tier in listed.tiers))


def _read(path: Path, wanted: Remembered) -> dict[str, Price | None]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Remembered)
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}
    same = (found.installed, found.day) == (wanted.installed, wanted.day)
    return found.prices if same else {}


def _write(path: Path, kept: Remembered) -> None:
    with suppress(OSError, OutputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            stream.write(msgspec.json.encode(kept))
