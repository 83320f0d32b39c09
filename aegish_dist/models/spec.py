"""From the entries of a model and its provider to the `ModelSpec` that a run keeps."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from aegish_dist.core.addresses import host_of, is_loopback
from aegish_dist.core.cost import Price
from aegish_dist.core.model import ModelSpec
from aegish_dist.errors import CatalogError
from aegish_dist.models.entries import ModelEntry, ProviderEntry, api_root, provider_name
from aegish_dist.models.prices import PriceOf

_BASE_URL_VARIABLES = {"openai": "OPENAI_BASE_URL"}


def model_spec(
    model: ModelEntry, provider: ProviderEntry, environ: Mapping[str, str], price_of: PriceOf
) -> ModelSpec:
    """Combine a model, its provider and the environment; the more specific one wins.

    Args:
        model: Its entry, empty but for the id when the catalog does not list it.
        price_of: Looks up the list price of a model without one of its own.

    Raises:
        CatalogError: A base URL in the environment is none; names the variable.
    """
    provider_id = provider_name(model.id)
    name = model.name or model.id.removeprefix(f"{provider_id}/")
    base_url = model.base_url or provider_base_url(provider_id, provider, environ)
    return ModelSpec(
        id=model.id,
        wire=provider.wire,
        name=name,
        base_url=base_url,
        key_variable=_key_variable(model, provider, base_url, environ),
        max_in_flight=model.max_in_flight or provider.max_in_flight,
        price=_price(model, provider, name, price_of),
        parameters={**dict.fromkeys(model.drop_parameters), **model.parameters},
        simulated=model.simulated,
        requests_per_minute=model.requests_per_minute or provider.requests_per_minute,
        tokens_per_minute=model.tokens_per_minute or provider.tokens_per_minute,
        shared=provider.shared.limits(),
        max_tokens_field=model.max_tokens_field or provider.max_tokens_field,
        batch_share=_batch_share(model, provider),
    )


def _batch_share(model: ModelEntry, provider: ProviderEntry) -> Decimal | None:
    """Return the share of the price by the more specific entry; one of 0 stands for no batches."""
    share = provider.batch_share if model.batch_share is None else model.batch_share
    return Decimal(share) if share else None


def _price(
    model: ModelEntry, provider: ProviderEntry, name: str, price_of: PriceOf
) -> Price | None:
    """Return the price by the catalog, or else the list price, with the cache's least length."""
    price_list = provider.genai_prices or provider_name(model.id)
    price = model.price.price() if model.price else price_of(price_list, name)
    least = model.cache_from_tokens
    least = provider.cache_from_tokens if least is None else least
    return None if price is None else replace(price, cache_from_tokens=least)


def provider_base_url(provider_id: str, provider: ProviderEntry, environ: Mapping[str, str]) -> str:
    """Return a provider's base URL, or the one that the environment gives in its place.

    Raises:
        CatalogError: The one in the environment is none; names the variable.
    """
    variable = _BASE_URL_VARIABLES.get(provider_id, "")
    override = environ.get(variable, "").strip()
    if not override:
        return provider.base_url
    try:
        return api_root(override)
    except ValueError as error:
        raise CatalogError(f"{variable}: {error}") from None


def _key_variable(
    model: ModelEntry, provider: ProviderEntry, base_url: str, environ: Mapping[str, str]
) -> str | None:
    """A server on this machine gets the key when there is one, and does without otherwise."""
    variable = provider.key_variable
    if model.simulated or not variable:
        return None
    if is_loopback(host_of(base_url)) and not environ.get(variable, "").strip():
        return None
    return variable


def missing_key(spec: ModelSpec, environ: Mapping[str, str]) -> str | None:
    """Name the environment variable that a model needs and that is unset or blank.

    Returns:
        None when nothing is missing: the variable is set, or no key is needed.
    """
    variable = spec.key_variable
    return variable if variable and not environ.get(variable, "").strip() else None
