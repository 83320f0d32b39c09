"""The catalog: from what a user types after `--models` to `ModelSpec` records.

The packaged file comes first, the user's file is laid over it key by key, and `OPENAI_BASE_URL`
over both. Prices are looked up only for the models that are asked for.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from importlib.resources import files
from pathlib import Path
from typing import Self

from aegish_dist.core.model import CallParameters, ModelSpec
from aegish_dist.core.wire import WireFormat
from aegish_dist.errors import CatalogError
from aegish_dist.inputs.regular import read_input
from aegish_dist.models.catalog_file import CatalogFile, Keys, parse_catalog, table
from aegish_dist.models.keys import missing_key
from aegish_dist.models.price_cache import PriceOf, remembered_prices
from aegish_dist.models.spec import model_spec
from aegish_dist.models.tables import ModelTable, ProviderTable, is_model_id, provider_name

ALL = "all"
"""Selects every entry with `default = true` that its provider has not ended."""
AVAILABLE = "available"
"""Selects those of `all` whose key is set here, or that need none."""
MAX_FILE_BYTES = 4 * 2**20
"""Size of a user's catalog at most."""
LIST_HINT = "`aegish-dist models list` shows all"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about a model beyond how it is called."""

    retires: date | None = None
    """From this day on the provider answers no more; None while none is announced."""
    takes_temperature: bool = True
    """Whether requests may state a temperature."""

    def retired(self, day: date) -> bool:
        """Whether the provider has ended it."""
        return self.retires is not None and self.retires <= day

    def takes(self, spec: ModelSpec, parameters: CallParameters) -> bool:
        """Whether the model takes these parameters, as far as the catalog knows."""
        # A null among the model's own parameters removes the field, a value replaces it.
        states_temperature = parameters.temperature is not None
        return (
            self.takes_temperature
            or not states_temperature
            or spec.parameters.get("temperature", 0) is None
        )


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """One line of `models list`."""

    spec: ModelSpec
    """The model as `resolve` would give it."""
    provider: str
    """The provider's name."""
    default: bool
    """Whether `all` includes it."""
    reference: bool
    """Whether the reference benchmark measured it."""
    notes: str
    """The entry's notes, or else the provider's."""
    facts: ModelFacts
    """Facts beyond its calls."""


@dataclass(frozen=True, slots=True)
class Catalog:
    """Providers by name and models by id."""

    providers: Mapping[str, ProviderTable]
    """Every one but the baselines has a base URL."""
    models: Mapping[str, ModelTable]
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
        packaged = files(__package__).joinpath("catalog.toml").read_text("utf-8")
        base = parse_catalog(packaged, "packaged catalog")
        over, source = CatalogFile(), "packaged catalog"
        if path is not None:
            source = str(path)
            over = parse_catalog(_read(path), source)
        merged = _overlaid(base.providers, over.providers)
        providers = {name: table(keys, ProviderTable) for name, keys in merged.items()}
        listed = _overlaid(base.models, over.models)
        models = {model_id: table(keys, ModelTable) for model_id, keys in listed.items()}
        _check_providers(providers, source)
        _check_models(models, providers, source)
        return cls(providers, models, price_cache)

    def entries(
        self, environ: Mapping[str, str] | None = None, at: datetime | None = None
    ) -> tuple[CatalogEntry, ...]:
        """List every model of the catalog in file order.

        Args:
            environ: Environment variables; none when None.
            at: The date of the prices; now when None.
        """
        with remembered_prices(self.price_cache, at or datetime.now(UTC)) as price_of:
            return tuple(
                CatalogEntry(
                    spec=self._spec(model.id, environ or {}, price_of),
                    provider=provider_name(model.id),
                    default=model.default,
                    reference=model.reference,
                    notes=model.notes or self.providers[provider_name(model.id)].notes,
                    facts=self.facts(model.id),
                )
                for model in self.models.values()
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

    def facts(self, model_id: str) -> ModelFacts:
        """Return what is known about a model; nothing about one that is not listed."""
        model = self.models.get(model_id)
        return ModelFacts() if model is None else ModelFacts(model.retires, model.takes_temperature)

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
            if model.default and not self.facts(model.id).retired(day):
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
        model = self.models.get(model_id) or ModelTable(id=model_id)
        return model_spec(model, self.providers[provider_name(model_id)], environ, price_of)


def _overlaid(base: Mapping[str, Keys], over: Mapping[str, Keys]) -> dict[str, Keys]:
    """Lay tables over others, key by key."""
    return {name: {**base.get(name, {}), **over.get(name, {})} for name in {**base, **over}}


def _no_price(provider: str, name: str) -> None:
    """Stand in for the price list, whose import takes longer than all the rest."""


def _read(path: Path) -> str:
    try:
        return read_input(path, MAX_FILE_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise CatalogError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CatalogError(f"{path}: not UTF-8; save it as UTF-8") from error


def _check_providers(providers: Mapping[str, ProviderTable], source: str) -> None:
    for name, provider in providers.items():
        if provider.wire.http is not None and not provider.base_url:
            raise CatalogError(f"{source}: [providers.{name}]: key 'base_url' is missing")


def _check_models(
    models: Mapping[str, ModelTable], providers: Mapping[str, ProviderTable], source: str
) -> None:
    for model_id in models:
        name = provider_name(model_id)
        if name not in providers:
            raise CatalogError(
                f"{source}: [[models]] '{model_id}': key 'id': unknown provider '{name}'; "
                f"add a table [providers.{name}]"
            )
