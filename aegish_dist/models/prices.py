"""List prices, offline, from the snapshot that genai-prices carries.

genai-prices takes 0.15 s to import, so functions import it, and `price_cache` spares most commands
that. Its updater is never started: a run's prices depend on the installed version and the date, not
on the network.
"""

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from aegish_dist.core.cost import Price, Rate

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

HOST_SLOT = "{host}"
"""In a provider's name: what follows the last colon of the model's name."""


def list_price(provider: str, name: str, at: datetime) -> Price | None:
    """Look up what a model costs.

    Args:
        provider: The provider's name in genai-prices; `{host}` in it is filled in.
        name: The model's name in the provider's requests.
        at: When, with a time zone: list prices change.

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
