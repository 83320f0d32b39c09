"""The catalog: from what a user types after `--models` to the `ModelSpec` that a run keeps.

The packaged file comes first, the user's file is laid over it key by key, and `OPENAI_BASE_URL`
over both. Prices are looked up only for the models that are asked for.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Self

from aegish_dist.core.model import ModelSpec, Price, WireFormat
from aegish_dist.core.secrets import host_of, is_loopback
from aegish_dist.errors import CatalogError
from aegish_dist.models.catalog_file import (
    ModelEntry,
    ProviderEntry,
    api_root,
    is_model_id,
    provider_name,
    read_entries,
)
from aegish_dist.models.prices import PriceOf, remembered_prices

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


ALL = "all"
"""Selects every entry with `default = true` that its provider has not ended."""
AVAILABLE = "available"
"""Selects those of `all` whose key is set here, or that need none."""
LIST_HINT = "`aegish-dist models list` shows all"


@dataclass(frozen=True, slots=True)
class ListedModel:
    """One line of `models list`."""

    spec: ModelSpec
    entry: ModelEntry
    notes: str


@dataclass(frozen=True, slots=True)
class Catalog:
    """Providers by name and models by id."""

    providers: Mapping[str, ProviderEntry]
    """Every one but the baselines has a base URL."""
    models: Mapping[str, ModelEntry]
    """In file order, packaged ones first; every one's provider is known."""
    price_cache: Path | None = None
    """The file that remembers list prices; None for none."""

    @classmethod
    def load(cls, path: Path | None = None, price_cache: Path | None = None) -> Self:
        """Read the packaged catalog and lay the user's over it.

        Args:
            path: The user's file; None for the packaged catalog alone.
            price_cache: The file that remembers list prices for a day; None for none.

        Raises:
            CatalogError: The user's file cannot be read or is malformed; names file, table, key.
        """
        entries = read_entries(path)
        return cls(entries.providers, entries.models, price_cache)

    def entries(
        self, environ: Mapping[str, str] | None = None, at: datetime | None = None
    ) -> tuple[ListedModel, ...]:
        """List every model of the catalog in file order.

        Args:
            environ: Environment variables; none when None.
            at: The date of the prices; now when None.
        """
        with remembered_prices(self.price_cache, at or datetime.now(UTC)) as price_of:
            return tuple(
                ListedModel(
                    spec=self._spec(entry.id, environ or {}, price_of),
                    entry=entry,
                    notes=entry.notes or self.providers[provider_name(entry.id)].notes,
                )
                for entry in self.models.values()
            )

    def resolve(
        self,
        selection: str | Sequence[str],
        environ: Mapping[str, str],
        at: datetime | None = None,
    ) -> tuple[ModelSpec, ...]:
        """Turn a selection into models, each once, in the order of their first mention.

        Args:
            selection: Ids, `all` or `available`, as a comma list or a sequence of them.
            environ: Environment variables: base URL overrides, and which keys are there.
            at: The date of the prices and of what is retired; now when None.

        Raises:
            CatalogError: An id is malformed or its provider unknown, or nothing is selected.
        """
        at = at or datetime.now(UTC)
        ids = list(dict.fromkeys(self._ids(selection, environ, at)))
        if not ids:
            choices = f"name one, '{AVAILABLE}' or '{ALL}'"
            raise CatalogError(f"no model selected: {choices}; {LIST_HINT}")
        for model_id in ids:
            self._check_id(model_id)
        with remembered_prices(self.price_cache, at) as price_of:
            return tuple(self._spec(each, environ, price_of) for each in ids)

    def entry(self, model_id: str) -> ModelEntry:
        """Return the entry of a model; one of defaults for a model that is not listed."""
        return self.models.get(model_id) or ModelEntry(id=model_id)

    def _ids(
        self, selection: str | Sequence[str], environ: Mapping[str, str], at: datetime
    ) -> Iterable[str]:
        parts = [selection] if isinstance(selection, str) else selection
        for word in (word.strip() for part in parts for word in part.split(",")):
            if word == ALL:
                yield from self._default_ids(at.date())
            elif word == AVAILABLE:
                specs = (
                    self._spec(each, environ, _no_price) for each in self._default_ids(at.date())
                )
                yield from (spec.id for spec in specs if missing_key(spec, environ) is None)
            elif word:
                yield word

    def _default_ids(self, day: date) -> Iterable[str]:
        for model in self.models.values():
            if model.default and not model.retired(day):
                yield model.id

    def _check_id(self, model_id: str) -> None:
        if model_id in self.models:
            return
        if not is_model_id(model_id):
            raise CatalogError(self._unknown(model_id, "is not of the form provider/model"))
        provider = self.providers.get(provider_name(model_id))
        if provider is None:
            known = f"has an unknown provider; known are {', '.join(self.providers)}"
            raise CatalogError(self._unknown(model_id, known))
        if provider.wire is WireFormat.BASELINE:
            raise CatalogError(self._unknown(model_id, "is not one of the baselines"))

    def _unknown(self, model_id: str, problem: str) -> str:
        close = difflib.get_close_matches(model_id.lower(), self.models, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        return f"model {model_id[:100]!r} {problem}; {hint}{LIST_HINT}"

    def _spec(self, model_id: str, environ: Mapping[str, str], price_of: PriceOf) -> ModelSpec:
        provider = self.providers[provider_name(model_id)]
        return model_spec(self.entry(model_id), provider, environ, price_of)


def _no_price(provider: str, name: str) -> None:
    """Stand in for the price list, whose import takes longer than all the rest."""
