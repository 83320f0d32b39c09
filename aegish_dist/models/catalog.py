"""The catalog: from what a user types after `--models` to the `ModelSpec` that a run keeps.

The packaged file comes first, the user's file is laid over it key by key, and `OPENAI_BASE_URL`
over both. Prices are looked up only for the models that are asked for.

The catalog also says which key may go where. A run names an address and a key variable for each of
its models, and a process that can submit a run can name any. So a process sends a key only to an
origin that its own catalog pairs with it: the packaged catalog, the one of `AEGISH_DIST_CATALOG`,
and `OPENAI_BASE_URL` in its own environment. Calls without a key are made to origins of that
catalog only, too: a worker may reach what the submitter cannot. In a run that is worked on in the
submitting process the two catalogs are one.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple, Self

from aegish_dist.core.model import Destination, ModelSpec, Price, WireFormat
from aegish_dist.core.secrets import host_of, is_loopback, is_metadata, origin
from aegish_dist.errors import CatalogError, ConfigError
from aegish_dist.models.catalog_file import (
    RESERVED_PREFIX,
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


REMEDY = "see docs/security.md for AEGISH_DIST_CATALOG"
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{0,99}")


class _Pair(NamedTuple):
    """A key variable, empty for calls without one, and an origin that it may be sent to."""

    variable: str
    origin: str


class Credentials:
    """The keys of this process, and the origins that its operator allows for each."""

    def __init__(
        self, pairs: Mapping[_Pair, bool], environ: Mapping[str, str], problem: str | None = None
    ) -> None:
        """Keep what is allowed; see `of`.

        Args:
            pairs: Allowed pairs, each with whether the key may go over plain HTTP.
            problem: Why nothing is allowed, when the catalog cannot be read.
        """
        self._pairs = pairs
        self._origins = frozenset(pair.origin for pair in pairs)
        self._environ = environ
        self._problem = problem

    @classmethod
    def of(cls, catalog: Catalog, environ: Mapping[str, str]) -> Self:
        """Allow the pairs of a catalog.

        Args:
            environ: Where the keys and base URLs of the operator are. A base URL that is none
                allows nothing.
        """
        allowed: dict[_Pair, bool] = {}
        for pair, plain_http in _pairs(catalog, environ):
            allowed[pair] = allowed.get(pair, False) or plain_http
        return cls(allowed, environ)

    def refusal(self, destination: Destination) -> str | None:
        """Say why this process makes no call to a destination; None when it does.

        Returns:
            A phrase without a key, in ASCII.
        """
        if destination.wire == WireFormat.BASELINE:
            return None
        return (
            self._problem
            or self._refused_address(destination.base_url)
            or self._refused_key(destination.key_variable or "", destination.base_url)
        )

    def key(self, destination: Destination) -> str | None:
        """Return the key for a destination, None where none is needed.

        Raises:
            ConfigError: This process makes no call to it; says why.
        """
        refusal = self.refusal(destination)
        if refusal is not None:
            raise ConfigError(refusal)
        variable = destination.key_variable
        return self._environ[variable].strip() if variable else None

    def _refused_address(self, base_url: str) -> str | None:
        where = origin(base_url)
        if where is None:
            return "its base_url is no plain http or https address"
        if is_metadata(host_of(base_url)):
            return f"{where} is a link-local or metadata address"
        if where not in self._origins:
            return f"{where} is not in the catalog here; {REMEDY}"
        return None

    def _refused_key(self, variable: str, base_url: str) -> str | None:
        where = origin(base_url) or ""
        if not variable:
            return None
        if not _VARIABLE.fullmatch(variable) or variable.startswith(RESERVED_PREFIX):
            return "its key variable is not the name of a key"
        pair = _Pair(variable, where)
        if pair not in self._pairs:
            return f"{variable} may not be sent to {where} by the catalog here; {REMEDY}"
        clear = where.startswith("http:") and not is_loopback(host_of(base_url))
        if clear and not self._pairs[pair]:
            return f"{variable} would go in clear to {where}: its table needs plain_http = true"
        return None if self._environ.get(variable, "").strip() else f"{variable} is not set"


class CatalogCredentials:
    """The credentials by a catalog file, read again when the file has changed."""

    def __init__(self, path: Path | None, environ: Mapping[str, str]) -> None:
        """Read nothing yet.

        Args:
            path: The operator's catalog; None for the packaged one alone.
        """
        self._path = path
        self._environ = environ
        self._stamp: object = None
        self._read: Credentials | None = None

    def now(self) -> Credentials:
        """Return what is allowed now: nothing while the file cannot be read."""
        stamp = self._stamp_now()
        if self._read is None or stamp != self._stamp:
            self._read, self._stamp = self._load(), stamp
        return self._read

    def _stamp_now(self) -> object:
        try:
            status = None if self._path is None else self._path.stat()
        except OSError:
            return "missing"
        return status and (status.st_mtime_ns, status.st_ino, status.st_size)

    def _load(self) -> Credentials:
        try:
            return Credentials.of(Catalog.load(self._path), self._environ)
        except CatalogError as error:
            return Credentials({}, self._environ, f"the catalog here cannot be used: {error}")


def _pairs(catalog: Catalog, environ: Mapping[str, str]) -> Iterator[tuple[_Pair, bool]]:
    for name, provider in catalog.providers.items():
        for base_url in _base_urls(name, provider, environ):
            where = origin(base_url)
            if where is not None:
                yield _Pair("", where), False
                yield _Pair(provider.key_variable, where), provider.plain_http
    for model_id, model in catalog.models.items():
        provider = catalog.providers[provider_name(model_id)]
        where = origin(model.base_url)
        if where is not None:
            yield _Pair("", where), False
            # What a simulator answers needs no key, so none may go there.
            variable = "" if model.simulated else provider.key_variable
            yield _Pair(variable, where), provider.plain_http or model.plain_http


def _base_urls(name: str, provider: ProviderEntry, environ: Mapping[str, str]) -> Iterator[str]:
    yield provider.base_url
    with suppress(CatalogError):
        yield provider_base_url(name, provider, environ)
