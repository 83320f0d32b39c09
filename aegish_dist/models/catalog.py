"""The catalog: from what a user types after `--models` to the `ModelSpec` that a run keeps.

The packaged file comes first, the user's is laid over it key by key, and `OPENAI_BASE_URL` over
both.

A user's entry replaces key by key, so every key is optional, and what has to be there is checked in
the end. Messages never repeat a value: people paste keys into the wrong place.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from aegish_dist.core.model import ARM_MARK, Limits, ModelSpec, Price, WireFormat, base_of
from aegish_dist.core.output import Output
from aegish_dist.core.secrets import host_of, is_loopback
from aegish_dist.core.text import JsonObject, did_you_mean
from aegish_dist.errors import CatalogError, InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml, placed, read_text, under
from aegish_dist.models.entries import (
    PROGRAMS,
    Keys,
    ModelEntry,
    ProviderEntry,
    api_root,
    checked_model,
    checked_provider,
    inheriting,
    is_model_id,
    is_provider_name,
    provider_name,
    require_chat,
)
from aegish_dist.models.prices import PriceOf, remembered_prices

Environ = Mapping[str, str]  # variables of the environment
Tables = Mapping[str, Keys]  # of a catalog file, by name

MAX_MODELS = 1_000  # of a run: each has a queue of its own, and any two are compared
MAX_FILE_BYTES = 4 * 2**20
LIST_PRICES = "list-prices.json"  # name of the file in the cache folder that keeps list prices
PACKAGED = "packaged catalog"
# Providers whose models on this machine cost nothing unless a price is given.
FREE_HERE = ("llamacpp", "ollama", "vllm")


def require_few(models: Collection[str]) -> None:
    if len(models) > MAX_MODELS:
        raise CatalogError(f"{len(models):,} models selected: a run asks at most {MAX_MODELS:,}")


class _Top(Struct, forbid_unknown_fields=True):
    providers: dict[str, JsonObject] = {}
    models: list[Any] = []


class _Named(Struct):
    id: str


class _File(Struct):
    """The tables of a catalog file, with no more than the keys given."""

    providers: Tables = {}
    models: Tables = {}


def _file(path: Path | None) -> _File:
    """Read the tables of a file, or of the packaged catalog; what they hold is checked later."""
    if path is None:
        text = files(__package__).joinpath("catalog.toml").read_text("utf-8")
    else:
        text = read_text(path, MAX_FILE_BYTES)

    content = parse_toml(text, parse_float=Decimal)
    with under("top level"):
        top = checked(content, _Top)
    for name in top.providers:
        if not is_provider_name(name):
            allowed = "lower-case letters, digits, '.', '_' and '-', and not 'policy'"
            raise InputError(f"[providers.{name}]: must be of {allowed}")

    models: dict[str, Keys] = {}
    for number, keys in enumerate(top.models, start=1):
        with under(f"[[models]] entry {number}"):
            model = checked(keys, _Named).id
            if model in models:
                first = list(models).index(model) + 1
                clash = f"'{model}' is already entry {first}; merge the two"
                raise InputError(clash, field="id")
            models[model] = keys

    return _File(top.providers, models)


def _overlaid(base: Tables, over: Tables) -> dict[str, Keys]:
    """Lay tables over others, key by key."""
    tables = dict(base)
    for name, keys in over.items():
        tables[name] = {**base.get(name, {}), **keys}
    return tables


def _variants(model: ModelEntry, keys: Keys) -> Iterator[tuple[str, ModelEntry]]:
    """Yield the variants of a model with their ids."""
    for name, own in model.variants.items():
        with under(f"[[models]] '{model.id}', variant '{name}'"):
            entry = checked_model({**keys, **own})
        # Parameters of a variant stand beside those of the model.
        parameters = model.parameters | entry.parameters
        variant = f"{model.id}{ARM_MARK}{name}"
        yield variant, replace(entry, parameters=parameters)


def base_url_of(provider_id: str, environ: Environ) -> str:
    """Return the base URL that the environment gives in place of the catalog's; empty: none."""
    variable = "OPENAI_BASE_URL" if provider_id == "openai" else None
    override = value_of(variable, environ)
    try:
        if override:
            return api_root(override)
        return ""
    except InputError as error:
        raise CatalogError(f"{variable}: {error.what}") from None


def value_of(variable: str | None, environ: Environ) -> str:
    return environ.get(variable or "", "").strip()


def missing_key(spec: ModelSpec, environ: Environ) -> str | None:
    """Name the environment variable that a model needs and that is unset or blank."""
    if value_of(spec.key_variable, environ):
        return None
    return spec.key_variable


ALL = "all"  # every entry with `default = true` that its provider has not ended
AVAILABLE = "available"  # those of `all` whose key is set here, or that need none
LIST_HINT = "`aegish-dist models list` shows those of the catalog"


class ListedModel(Struct, frozen=True):
    spec: ModelSpec
    entry: ModelEntry


def _providers(tables: Tables) -> dict[str, ProviderEntry]:
    providers: dict[str, ProviderEntry] = {}
    for name, keys in tables.items():
        with under(f"[providers.{name}]"):
            provider = checked_provider(keys)
            require_chat(provider, provider.wire)
        providers[name] = provider
    return providers


def _model(
    model_id: str,
    keys: Keys,
    ids_of_file: Collection[str],
) -> ModelEntry:
    try:
        return checked_model(keys)
    except InputError as error:
        number = list(ids_of_file).index(model_id) + 1
        known = f" ({model_id})" if is_model_id(model_id) else ""
        raise error.under(f"[[models]] entry {number}{known}") from None


def _of_providers(
    models: Mapping[str, ModelEntry], providers: Mapping[str, ProviderEntry]
) -> dict[str, ModelEntry]:
    """Return the models with what they take from their providers."""
    complete: dict[str, ModelEntry] = {}
    for model_id, own in models.items():
        name = provider_name(model_id)
        with under(f"[[models]] '{model_id}'"):
            provider = providers.get(name)
            if provider is None:
                problem = f"unknown provider '{name}'; add a table [providers.{name}]"
                raise InputError(problem, field="id")
            model = inheriting(own, provider)
            require_chat(model, provider.wire)
        complete[model_id] = model

    return complete


class Catalog(Struct, frozen=True):
    providers: Mapping[str, ProviderEntry]  # each but the baselines has a base URL
    models: Mapping[str, ModelEntry]  # in file order, packaged ones first
    variants: Mapping[str, ModelEntry] = field(default_factory=dict)  # by MODEL#VARIANT
    named: frozenset[str] = frozenset()  # providers that the user's own catalog names
    price_cache: Path | None = None  # remembers list prices; None for none
    path: Path | None = None  # the user's own catalog; None for the packaged one alone

    @classmethod
    def load(cls, path: Path | None = None, price_cache: Path | None = None) -> Self:
        """Read the packaged catalog and lay the user's over it, if there is one."""
        try:
            base = _file(None)
            over = _File() if path is None else _file(path)
            providers = _providers(_overlaid(base.providers, over.providers))
            models: dict[str, ModelEntry] = {}
            variants: dict[str, ModelEntry] = {}
            # Checked once both are laid together: a user's entry may hold a single key.
            for model_id, keys in _overlaid(base.models, over.models).items():
                of_file = over.models if model_id in over.models else base.models
                model = _model(model_id, keys, of_file)
                models[model_id] = model
                variants.update(_variants(model, keys))
            models = _of_providers(models, providers)
            variants = _of_providers(variants, providers)
        except InputError as error:
            source = PACKAGED if path is None else path
            raise CatalogError(f"{source}: {placed(error, path)}") from None

        named = {*over.providers, *map(provider_name, over.models)}
        return cls(
            providers=providers,
            models=models,
            variants=variants,
            named=frozenset(named),
            price_cache=price_cache,
            path=path,
        )

    def entries(self, environ: Environ) -> tuple[ListedModel, ...]:
        """List every model in file order, with its price of today, its variants behind it."""
        listed = []
        with remembered_prices(self.price_cache, datetime.now(UTC)) as price_of:
            for model in self.models:
                for model_id in (model, *self._variants_of(model)):
                    spec = self._spec(model_id, environ, price_of)
                    listed.append(ListedModel(spec, self.entry(model_id)))
        return tuple(listed)

    def _variants_of(self, model: str) -> list[str]:
        return [variant for variant in self.variants if base_of(variant) == model]

    def resolve(
        self,
        selection: str | Sequence[str],
        environ: Environ,
        at: datetime | None = None,
        *,
        prompts: Sequence[str] = (),
    ) -> tuple[ModelSpec, ...]:
        """Turn ids, `all` or `available` into models, each once, by first mention.

        Ids may name variants, and `prompts` as arms.
        """
        at = at or datetime.now(UTC)
        ids = list(dict.fromkeys(self._ids(selection, environ, at.date())))
        require_few(ids)
        if not ids:
            choices = f"name one, '{AVAILABLE}' or '{ALL}'"
            raise CatalogError(f"no model selected: {choices}; {LIST_HINT}")

        for model_id in ids:
            if problem := self._problem(base_of(model_id)):
                hint = f"{did_you_mean(model_id, self.models)} {LIST_HINT}".strip()
                raise CatalogError(f"model {model_id[:100]!r} {problem}; {hint}")
            self._require_arm(model_id, prompts)

        with remembered_prices(self.price_cache, at) as price_of:
            return tuple(self._spec(each, environ, price_of) for each in ids)

    def arm_of(self, model_id: str) -> tuple[str, str]:
        """Return the variant and the prompt that an id names, empty where it names none."""
        model, _, arm = model_id.partition(ARM_MARK)
        for cuts in range(arm.count("+") + 1):
            variant, *prompt = arm.rsplit("+", cuts)
            if f"{model}{ARM_MARK}{variant}" in self.variants:
                return variant, "+".join(prompt)
        return "", arm

    def _require_arm(self, model_id: str, prompts: Sequence[str]) -> None:
        model, mark, arm = model_id.partition(ARM_MARK)
        if not mark:
            return
        variant, prompt = self.arm_of(model_id)
        canonical = "+".join(part for part in (variant, prompt) if part)
        # An arm has one spelling: its variant first, then its prompt.
        if arm and arm == canonical and prompt in ("", *prompts):
            return
        known = [each.removeprefix(f"{model}{ARM_MARK}") for each in self._variants_of(model)]
        listed = "it has no variants"
        if known:
            listed = f"its variants are {', '.join(known)}"
        hint = did_you_mean(prompt, [*known, *prompts], f"{listed}, and no --prompt is named so")
        unknown = prompt or arm
        raise CatalogError(f"model {model!r} has no arm {unknown[:100]!r}: {hint}")

    def meant(self, model_id: str) -> str:
        """Ask whether a listed model was meant by an id that is not listed, which may be right."""
        model = base_of(model_id)
        return "" if model in self.models else did_you_mean(model, self.models)

    def unlisted(self, model_id: str) -> str:
        """Return the warning about an id that is not listed though others of its provider are.

        Many gateways answer any name.
        """
        model_id = base_of(model_id)
        listed = {provider_name(model) for model in self.models}
        if model_id in self.models or provider_name(model_id) not in listed:
            return ""
        warning = f"{model_id} is not in the catalog: asked as it stands; {self.meant(model_id)}"
        return warning.removesuffix("; ")

    def redirected(self, specs: Iterable[ModelSpec]) -> tuple[ModelSpec, ...]:
        """Return a model for each address of these that is not its provider's in the package."""
        packaged = _file(None).providers
        moved: dict[tuple[str, str], ModelSpec] = {}
        for spec in specs:
            table = packaged.get(spec.provider)
            own = table.get("base_url", "") if table else ""
            if spec.base_url != own:
                moved[spec.provider, spec.base_url] = spec

        return tuple(moved.values())

    def entry(self, model_id: str) -> ModelEntry:
        """Return the entry of a model, with what its variant lays over it."""
        model = base_of(model_id)
        variant, _ = self.arm_of(model_id)
        entry = self.variants.get(f"{model}{ARM_MARK}{variant}") or self.models.get(model)
        if entry is not None:
            return entry
        unlisted = ModelEntry(id=model)
        provider = self.providers.get(provider_name(model))
        return unlisted if provider is None else inheriting(unlisted, provider)

    def output_of(self, model_id: str) -> Output | None:
        """Return the mapping of a model's answers; None where the catalog has none."""
        if not is_model_id(base_of(model_id)):  # an imported one may have any name
            return None
        return self.entry(model_id).output

    def _ids(
        self,
        selection: str | Sequence[str],
        environ: Environ,
        day: date,
    ) -> Iterator[str]:
        text = selection if isinstance(selection, str) else ",".join(selection)
        models = self.models.values()
        usual = [model.id for model in models if model.default and not model.retired(day)]
        for word in map(str.strip, text.split(",")):
            if word == ALL:
                yield from usual
            elif word == AVAILABLE:
                for model_id in usual:
                    # Without the price list, whose import takes longer than all the rest.
                    spec = self._spec(model_id, environ, lambda *_: None)
                    if missing_key(spec, environ) is None:
                        yield model_id
            elif word:
                yield word

    def _problem(self, model_id: str) -> str | None:
        if model_id in self.models:
            return None
        if not is_model_id(model_id):
            return "is not of the form provider/model"
        provider = self.providers.get(provider_name(model_id))
        if provider is None and model_id.startswith("simulated"):
            start = "start `aegish-dist simulate-provider --write-catalog sim.toml`"
            return f"needs the simulator: {start} and set AEGISH_DIST_CATALOG=sim.toml"

        if provider is None:
            return f"has an unknown provider; known are {', '.join(self.providers)}"
        return self._problem_of_unlisted(model_id, provider)

    def _problem_of_unlisted(self, model_id: str, provider: ProviderEntry) -> str | None:
        if provider.simulated:
            return "is not one of the simulated models"
        if provider.wire.reads_prompt:
            return None
        if provider.wire is WireFormat.BASELINE:
            return "is not one of the baselines"
        add = f'add to {self.path}: [[models]] and below it id = "{model_id}"'
        return f"is not one of the guards in the catalog; {add}"

    def _spec(
        self,
        model_id: str,
        environ: Environ,
        price_of: PriceOf,
    ) -> ModelSpec:
        """Combine a model, its provider and the environment."""
        provider_id = provider_name(model_id)
        model = self.entry(model_id)
        provider = self.providers[provider_id]
        name = model.name or base_of(model_id).removeprefix(f"{provider_id}/")
        # The environment stands between a model's own address and its provider's.
        base_url = model.base_url or base_url_of(provider_id, environ) or provider.base_url
        local = is_loopback(host_of(base_url))
        simulated = model.simulated or provider.simulated
        variable: str | None = provider.key_variable or None
        # A server on this machine gets the key when there is one, and does without otherwise.
        if simulated or (local and not value_of(variable, environ)):
            variable = None
        if model.price is None:
            price = price_of(provider.genai_prices or provider_id, name)
        else:
            price = model.price.price()

        free = provider_id in FREE_HERE or not provider.wire.reads_prompt
        if price is None and free and (local or provider.wire in PROGRAMS):
            price = Price(per_call=Decimal(0))  # other addresses may stand before a paid provider
        if price is not None:
            price = replace(price, cache_from_tokens=model.cache_from_tokens or 0)
        return ModelSpec(
            id=model_id,
            wire=provider.wire,
            name=name,
            base_url=base_url,
            key_variable=variable,
            max_in_flight=model.max_in_flight,
            price=price,
            parameters={
                **dict.fromkeys(model.drop_parameters),
                **model.parameters,
            },
            simulated=simulated,
            requests_per_minute=model.requests_per_minute,
            tokens_per_minute=model.tokens_per_minute,
            shared=Limits(*astuple(provider.shared)),
            max_tokens_field=model.max_tokens_field,
            batch_share=Decimal(model.batch_share) if model.batch_share else None,
            request=model.request,
            output=model.output,
            structured=model.structured,
        )
