"""The catalog: from what a user types after `--models` to the `ModelSpec` that a run keeps.

The packaged file comes first, the user's is laid over it key by key, and `OPENAI_BASE_URL` over
both.

A user's entry replaces key by key, so every key is optional, and what has to be there is checked in
the end. Messages never repeat a value: people paste keys into the wrong place.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from msgspec import Meta, Struct, field
from msgspec.structs import astuple, force_setattr, replace

from aegish_dist.core.model import (
    ARM_MARK,
    CallParameters,
    Limits,
    MaxTokensField,
    ModelSpec,
    Price,
    Program,
    Structured,
    WireFormat,
    base_of,
    is_amount,
)
from aegish_dist.core.output import Output, pattern_problem
from aegish_dist.core.run import COMMAND_SLOT
from aegish_dist.core.secrets import host_of, is_loopback, is_metadata, origin
from aegish_dist.core.text import did_you_mean
from aegish_dist.errors import CatalogError, InputError
from aegish_dist.inputs.checking import checked, refuse
from aegish_dist.inputs.documents import parse_toml, placed, read_text
from aegish_dist.models.prices import PriceEntry, PriceOf, remembered_prices

_PROVIDER = r"[a-z0-9][a-z0-9._-]*"
_SEGMENT = r"[A-Za-z0-9~@][A-Za-z0-9._:@+-]*"
_PROVIDER_NAME = re.compile(_PROVIDER)
_MODEL_ID = re.compile(rf"{_PROVIDER}(?:/{_SEGMENT})+")
_ARM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
# Upper case only: some providers' keys would pass for lower-case names.
_ENVIRONMENT_VARIABLE = re.compile(r"(?:[A-Z][A-Z0-9_]*)?")
RESERVED_PREFIX = "AEGISH_DIST_"  # of this program: their passwords are sent to no provider
MAX_ID_LENGTH = 200
MAX_MODELS = 1_000  # of a run: each has a queue of its own, and any two are compared


def is_model_id(text: str) -> bool:
    """Whether the text has the form PROVIDER/MODEL; segments of dots alone are refused."""
    return len(text) <= MAX_ID_LENGTH and _MODEL_ID.fullmatch(text) is not None


def is_arm(text: str) -> bool:
    return len(text) <= MAX_ID_LENGTH and _ARM.fullmatch(text) is not None


def is_contender(text: str) -> bool:
    """Whether the text is a model id, with or without an arm."""
    base, mark, arm = text.partition(ARM_MARK)
    return is_model_id(base) and (not mark or is_arm(arm))


def require_few(models: Collection[str]) -> None:
    if len(models) > MAX_MODELS:
        raise CatalogError(f"{len(models):,} models selected: a run asks at most {MAX_MODELS:,}")


def provider_name(model_id: str) -> str:
    return model_id.partition("/")[0]


def api_root(url: str) -> str:
    """Return a base URL without its trailing slash; an InputError does not repeat it."""
    form = "must be an http or https URL in ASCII with a host and without user, query or fragment"
    refuse(
        (origin(url) is None, "base_url", form),
        (is_metadata(host_of(url)), "base_url", "must not be a link-local or metadata address"),
    )
    return url.rstrip("/")


def _as_json(value: object) -> Any:
    """Return a value as a request body holds it: TOML's fractions are read as Decimal."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, Decimal) and math.isfinite(value):
        return float(value)
    if not isinstance(value, str | int):
        raise InputError("dates, times, inf and nan have no JSON form", field="parameters")
    return value


Tokens = Annotated[int, Meta(ge=0, le=10_000_000)]
Share = Annotated[int, Meta(ge=0, le=1)] | Decimal


CHAT = frozenset(wire for wire in WireFormat if wire.reads_prompt)
PROGRAMS = frozenset({WireFormat.EXEC, WireFormat.PYTHON})
FREE_HERE = ("llamacpp", "ollama", "vllm")
"""Providers whose models on this machine cost nothing unless a price is given."""


class LimitsEntry(Limits, frozen=True, forbid_unknown_fields=True):
    """`Limits` of a model; `[providers.NAME.shared]` has them over all models together."""


class _CalledEntry(LimitsEntry, frozen=True, kw_only=True):
    """Keys of providers and models alike; a model without a value takes its provider's."""

    base_url: str = ""  # without a trailing slash
    plain_http: bool = False  # the key may go unencrypted to other machines
    max_tokens_field: MaxTokensField | None = None  # for OpenAI's wire format; None: by the host
    batch_share: Share | None = None  # of the price of a call; 0: no batches
    request: dict[str, Any] | None = None
    """In the format `http`: the document to send, in which `{command}` stands once."""
    output: Output | None = None  # None: the JSON that our prompts ask for
    structured: Structured | None = None  # None: only the prompt says what to answer
    notes: str = ""

    def __post_init__(self) -> None:
        if self.request is not None:
            force_setattr(self, "request", _as_json(self.request))
            once = json.dumps(self.request).count(COMMAND_SLOT) == 1
            refuse((not once, "request", f"must hold {COMMAND_SLOT} once"))
        for number, (pattern, _) in enumerate(self.output.patterns if self.output else ()):
            if problem := pattern_problem(pattern):
                raise InputError(problem, field=f"output.patterns[{number}]", text=pattern)
        share = self.batch_share
        if isinstance(share, Decimal) and not is_amount(share, 1):
            raise InputError("must be from 0 to 1", field="batch_share")
        if self.base_url:
            force_setattr(self, "base_url", api_root(self.base_url))


_OWN_KEYS = {
    "command": WireFormat.EXEC,
    "object": WireFormat.PYTHON,
    "request": WireFormat.HTTP,
}
"""Keys of a provider that one wire needs and the others do not know."""


class ProviderEntry(_CalledEntry, frozen=True, kw_only=True):
    wire: WireFormat = WireFormat.OPENAI
    key_variable: str = ""  # empty when no key is needed
    shared: LimitsEntry = LimitsEntry()  # over all its models together
    cache_from_tokens: Tokens = 0
    genai_prices: str = ""  # its name there; empty: the same
    simulated: bool = False  # it has the models that are listed, no other
    command: tuple[Annotated[str, Meta(min_length=1, pattern=r"\A[^\0]*\Z")], ...] = ()
    """Of the wire `exec`, like the keys up to `writes`, which `Program` explains."""
    mode: Literal["once", "lines"] = "once"
    input: Literal["hook", "json", "text"] = "json"
    processes: Annotated[int, Meta(ge=1, le=64)] = 1
    memory_mb: Annotated[int, Meta(ge=16, le=2**20)] = 512
    pass_variables: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    object: Annotated[str, Meta(pattern=r"\A(?:\w+(?:\.\w+)*:\w+(?:\.\w+)*)?\Z")] = ""
    """Of the wire `python`: `module:name`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for variable in self.pass_variables:
            is_name = bool(variable) and _ENVIRONMENT_VARIABLE.fullmatch(variable) is not None
            allowed = is_name and not variable.startswith(RESERVED_PREFIX)
            what = f"must hold names of environment variables, none that begins {RESERVED_PREFIX}"
            refuse((not allowed, "pass_variables", what))
        paths = all(path.startswith("/") and "\0" not in path for path in self.writes)
        refuse((not paths, "writes", "must hold absolute paths, such as '/var/cache/guard'"))
        unfit = self.mode == "lines" and self.input == "text"
        refuse((unfit, "input", "must be 'json' or 'hook': lines need an id"))
        named = _ENVIRONMENT_VARIABLE.fullmatch(self.key_variable)
        form = "must be the name of an environment variable in upper case, not a key"
        ours = f"must not begin with {RESERVED_PREFIX}: that is a setting of this program"
        refuse(
            (not named, "key_variable", form),
            (self.key_variable.startswith(RESERVED_PREFIX), "key_variable", ours),
            (
                self.key_variable and self.wire in PROGRAMS,
                "key_variable",
                "is not passed to a program: name it in 'pass_variables'",
            ),
        )

    @property
    def program(self) -> Program:
        """The program of the wire `exec`; of the wire `python`, its command is the object alone."""
        keys = {name: getattr(self, name) for name in Program.__struct_fields__}
        return Program(**keys | {"command": self.command or (self.object,)})

    @property
    def missing(self) -> str | None:
        """Return the key that its wire needs and that nothing gives; None: there is none."""
        needed = [key for key, wire in _OWN_KEYS.items() if wire is self.wire]
        needed += ["base_url"] if self.wire.http is not None else []
        return next((key for key in needed if not getattr(self, key)), None)


class ModelEntry(_CalledEntry, frozen=True, kw_only=True):
    id: str
    name: Annotated[str, Meta(min_length=1)] | None = None
    """In requests; None: the id without its provider."""
    default: bool = False
    reference: bool = False
    price: PriceEntry | None = None
    parameters: dict[str, Any] = field(default_factory=dict)
    drop_parameters: list[str] = field(default_factory=list)
    """Fields of the request body that the model refuses."""
    cache_from_tokens: Tokens | None = None  # None: as for its provider
    takes_temperature: bool = True
    prompt: str | None = None  # bundled or a file beside the catalog; None: the run's
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Keys laid over those of the model, by the name of the arm."""
    retires: date | None = None  # answers end; None: none announced
    simulated: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_model_id(self.id):
            raise InputError("must have the form provider/model", field="id")
        for name, keys in self.variants.items():
            at, form = f"variants.{name}", "must be named by letters, digits, '.', '_', '-' and '+'"
            same = "is the same for all variants: give it to the model"
            refuse(
                (not is_arm(name), at, form),
                *((key in _OF_ALL_ARMS, f"{at}.{key}", same) for key in keys),
            )
        force_setattr(self, "parameters", _as_json(self.parameters))

    def retired(self, day: date) -> bool:
        return self.retires is not None and self.retires <= day

    def takes(self, spec: ModelSpec, parameters: CallParameters) -> bool:
        """Whether the model takes these parameters, as far as the catalog knows."""
        # A null among the model's own parameters removes the field, a value replaces it.
        return (
            self.takes_temperature
            or parameters.temperature is None
            or spec.parameters.get("temperature", 0) is None
        )


_OF_ALL_ARMS = {
    *LimitsEntry.__struct_fields__,
    *("id", "variants", "price", "batch_share", "cache_from_tokens", "base_url", "plain_http"),
    *("default", "reference", "retires", "simulated"),
}

MAX_FILE_BYTES = 4 * 2**20
PACKAGED = "packaged catalog"
Keys = Mapping[str, Any]  # those a table gives, as TOML holds them
Entry = TypeVar("Entry", bound=ModelEntry | ProviderEntry)


_Tables = tuple[dict[str, Keys], dict[str, Keys]]
"""Providers by name and models by id of one file, with no more than the keys given."""


def _overlaid(base: Mapping[str, Keys], over: Mapping[str, Keys]) -> dict[str, Keys]:
    return {name: {**base.get(name, {}), **over.get(name, {})} for name in {**base, **over}}


def _variants(models: Mapping[str, Keys]) -> Iterator[tuple[str, ModelEntry]]:
    """Yield the variants of all models by their ids."""
    for model, keys in models.items():
        for name, own in keys.get("variants", {}).items():
            heading = f"[[models]] '{model}', variant '{name}'"
            _entry({"id": model, **own}, ModelEntry, heading)
            parameters = {**keys.get("parameters", {}), **own.get("parameters", {})}
            entry = _entry({**keys, **own, "parameters": parameters}, ModelEntry, heading)
            yield f"{model}{ARM_MARK}{name}", entry


class _Top(Struct, forbid_unknown_fields=True):
    """The top level; its tables are checked one by one, which names them in messages."""

    providers: dict[str, Any] = {}
    models: list[Any] = []


def _tables(path: Path | None) -> _Tables:
    try:
        packaged = files(__package__).joinpath("catalog.toml")
        text = packaged.read_text("utf-8") if path is None else read_text(path, MAX_FILE_BYTES)
        top = checked(parse_toml(text, parse_float=Decimal), _Top)
        for name, keys in top.providers.items():
            if not _PROVIDER_NAME.fullmatch(name) or name == "policy":
                allowed = "lower-case letters, digits, '.', '_' and '-', and not 'policy'"
                raise InputError(f"[providers.{name}]: must be of {allowed}")
            _entry(keys, ProviderEntry, f"[providers.{name}]")
        return top.providers, _models(top.models)
    except InputError as error:
        where = f"top level: {error}" if error.field else placed(error, path)
        raise CatalogError(f"{PACKAGED if path is None else path}: {where}") from None


def _models(tables: list[Any]) -> dict[str, Keys]:
    numbers: dict[str, int] = {}
    for number, keys in enumerate(tables, start=1):
        model = keys.get("id") if isinstance(keys, dict) else None
        known = f" ({model})" if isinstance(model, str) and is_model_id(model) else ""
        _entry(keys, ModelEntry, f"[[models]] entry {number}{known}")
        first = numbers.setdefault(keys["id"], number)
        if first != number:
            clash = f"'{model}' is already entry {first}; merge the two"
            raise InputError(f"[[models]] entry {number}: key 'id': {clash}")
    return {keys["id"]: keys for keys in tables}


def _entry(keys: object, kind: type[Entry], heading: str) -> Entry:
    try:
        # Decimals stay what they are; otherwise a text would do for a price.
        return checked(keys, kind, exact=(Decimal,))
    except InputError as error:
        raise error.under(heading) from None


def provider_base_url(provider_id: str, provider: ProviderEntry, environ: Mapping[str, str]) -> str:
    """Return a provider's base URL, or the one that the environment gives in its place."""
    variable = "OPENAI_BASE_URL" if provider_id == "openai" else None
    override = value_of(variable, environ)
    try:
        return api_root(override) if override else provider.base_url
    except InputError as error:
        raise CatalogError(f"{variable}: {error.what}") from None


def value_of(variable: str | None, environ: Mapping[str, str]) -> str:
    return environ.get(variable or "", "").strip()


def missing_key(spec: ModelSpec, environ: Mapping[str, str]) -> str | None:
    """Name the environment variable that a model needs and that is unset or blank."""
    return None if value_of(spec.key_variable, environ) else spec.key_variable


ALL = "all"  # every entry with `default = true` that its provider has not ended
AVAILABLE = "available"  # those of `all` whose key is set here, or that need none
LIST_HINT = "`aegish-dist models list` shows those of the catalog"


class ListedModel(Struct, frozen=True):
    spec: ModelSpec
    entry: ModelEntry


def _require_chat(entry: _CalledEntry, provider: ProviderEntry, where: str) -> None:
    """Refuse `structured` without the JSON that our prompts ask for, and tokens that none sends."""
    output = entry.output or provider.output
    if output is not None and output.kind == "tokens" and provider.wire is not WireFormat.OPENAI:
        problem = f"wire '{provider.wire}' sends no log probabilities"
        raise CatalogError(f"{where}: key 'output': {problem}")
    if entry.structured or provider.structured:
        if not provider.wire.reads_prompt:
            raise CatalogError(f"{where}: key 'structured': wire '{provider.wire}' knows none")
        if output is not None and output.kind != "action-json":
            clash = f"asks for kind 'action-json', and 'output' reads '{output.kind}'"
            raise CatalogError(f"{where}: key 'structured': {clash}")


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
        source = PACKAGED if path is None else str(path)
        base = _tables(None)
        over: _Tables = ({}, {}) if path is None else _tables(path)
        of_providers, of_models = map(_overlaid, base, over)
        models = {n: _entry(keys, ModelEntry, n) for n, keys in of_models.items()}
        try:
            providers = {
                name: _entry(keys, ProviderEntry, f"[providers.{name}]")
                for name, keys in of_providers.items()
            }
            variants = dict(_variants(of_models))
        except InputError as error:
            raise CatalogError(f"{source}: {placed(error, path)}") from None
        for name, provider in providers.items():
            if provider.missing is not None:
                missing = f"key '{provider.missing}' is missing"
                raise CatalogError(f"{source}: [providers.{name}]: {missing}")
            for key, wire in _OWN_KEYS.items():
                if getattr(provider, key) and provider.wire is not wire:
                    stray = f"key '{key}' belongs to wire '{wire}'"
                    raise CatalogError(f"{source}: [providers.{name}]: {stray}")
            _require_chat(provider, provider, f"{source}: [providers.{name}]")
        for model_id, model in {**models, **variants}.items():
            name = provider_name(model_id)
            if name not in providers:
                raise CatalogError(
                    f"{source}: [[models]] '{model_id}': key 'id': unknown provider '{name}'; "
                    f"add a table [providers.{name}]"
                )
            _require_chat(model, providers[name], f"{source}: [[models]] '{model_id}'")
        named = frozenset([*over[0], *map(provider_name, over[1])])
        return cls(providers, models, variants, named, price_cache, path)

    def entries(self, environ: Mapping[str, str]) -> tuple[ListedModel, ...]:
        """List every model in file order, with its price of today, its variants behind it."""
        ids = [
            each
            for model in self.models
            for each in (model, *(v for v in self.variants if base_of(v) == model))
        ]
        with remembered_prices(self.price_cache, datetime.now(UTC)) as price_of:
            return tuple(
                ListedModel(self._spec(each, environ, price_of), self.entry(each)) for each in ids
            )

    def resolve(
        self,
        selection: str | Sequence[str],
        environ: Mapping[str, str],
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
            variant, *rest = arm.rsplit("+", cuts)
            if f"{model}{ARM_MARK}{variant}" in self.variants:
                return variant, "+".join(rest)
        return "", arm

    def _require_arm(self, model_id: str, prompts: Sequence[str]) -> None:
        model, mark, arm = model_id.partition(ARM_MARK)
        variant, prompt = self.arm_of(model_id)
        joined = arm == "+".join(filter(None, (variant, prompt))) and arm
        if mark and not (joined and prompt in ("", *prompts)):
            known = [
                each.partition(ARM_MARK)[2] for each in self.variants if base_of(each) == model
            ]
            those = f"its variants are {', '.join(known)}" if known else "it has no variants"
            hint = did_you_mean(prompt, [*known, *prompts], f"{those}, and no --prompt is named so")
            raise CatalogError(f"model {model!r} has no arm {(prompt or arm)[:100]!r}: {hint}")

    def meant(self, model_id: str) -> str:
        """Ask whether a listed model was meant by an id that is not listed, which may be right."""
        model_id = base_of(model_id)
        return "" if model_id in self.models else did_you_mean(model_id, self.models)

    def unlisted(self, model_id: str) -> str:
        """Return the warning about an id that is not listed though others of its provider are.

        Many gateways answer any name.
        """
        model_id = base_of(model_id)
        siblings = {provider_name(each) for each in self.models}
        if model_id in self.models or provider_name(model_id) not in siblings:
            return ""
        asked = f"{model_id} is not in the catalog: asked as it stands"
        return "; ".join(filter(None, (asked, self.meant(model_id))))

    def redirected(self, specs: Iterable[ModelSpec]) -> tuple[ModelSpec, ...]:
        """Return a model for each address of these that is not its provider's in the package."""
        own = {name: keys.get("base_url", "") for name, keys in _tables(None)[0].items()}
        other = (spec for spec in specs if spec.base_url != own.get(spec.provider, ""))
        return tuple({(spec.provider, spec.base_url): spec for spec in other}.values())

    def entry(self, model_id: str) -> ModelEntry:
        """Return the entry of a model, with what its variant lays over it."""
        model, variant = base_of(model_id), self.arm_of(model_id)[0]
        of_arm = self.variants.get(f"{model}{ARM_MARK}{variant}")
        return of_arm or self.models.get(model) or ModelEntry(id=model)

    def output_of(self, model_id: str) -> Output | None:
        """Return the mapping of a model's answers; None where the catalog has none."""
        if not is_model_id(base_of(model_id)):  # an imported one may have any name
            return None
        provider = self.providers.get(provider_name(model_id)) or ProviderEntry()
        return self.entry(model_id).output or provider.output

    def _ids(
        self, selection: str | Sequence[str], environ: Mapping[str, str], day: date
    ) -> Iterator[str]:
        parts = [selection] if isinstance(selection, str) else selection
        usual = [each.id for each in self.models.values() if each.default and not each.retired(day)]
        for word in (word.strip() for part in parts for word in part.split(",")):
            if word == ALL:
                yield from usual
            elif word == AVAILABLE:
                # Without the price list, whose import takes longer than all the rest.
                specs = (self._spec(each, environ, lambda *_: None) for each in usual)
                yield from (spec.id for spec in specs if missing_key(spec, environ) is None)
            elif word:
                yield word

    def _problem(self, model_id: str) -> str | None:
        provider = self.providers.get(provider_name(model_id))
        if model_id in self.models:
            return None
        if not is_model_id(model_id):
            return "is not of the form provider/model"
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

    def _spec(self, model_id: str, environ: Mapping[str, str], price_of: PriceOf) -> ModelSpec:
        """Combine a model, its provider and the environment; the more specific one wins."""
        provider_id = provider_name(model_id)
        model, provider = self.entry(model_id), self.providers[provider_id]
        name = model.name or base_of(model_id).removeprefix(f"{provider_id}/")
        base_url = model.base_url or provider_base_url(provider_id, provider, environ)
        variable: str | None = provider.key_variable
        # A server on this machine gets the key when there is one, and does without otherwise.
        local = is_loopback(host_of(base_url))
        simulated = model.simulated or provider.simulated
        if simulated or not variable or (local and not value_of(variable, environ)):
            variable = None
        price_list = provider.genai_prices or provider_id
        price = model.price.price() if model.price else price_of(price_list, name)
        free = provider_id in FREE_HERE or not provider.wire.reads_prompt
        if price is None and free and (local or provider.wire in PROGRAMS):
            price = Price(per_call=Decimal(0))  # other addresses may stand before a paid provider
        if price is not None:
            of_model, of_provider = model.cache_from_tokens, provider.cache_from_tokens
            price = replace(price, cache_from_tokens=of_provider if of_model is None else of_model)
        share = provider.batch_share if model.batch_share is None else model.batch_share
        return ModelSpec(
            id=model_id,
            wire=provider.wire,
            name=name,
            base_url=base_url,
            key_variable=variable,
            max_in_flight=model.max_in_flight or provider.max_in_flight,
            price=price,
            parameters={**dict.fromkeys(model.drop_parameters), **model.parameters},
            simulated=simulated,
            requests_per_minute=model.requests_per_minute or provider.requests_per_minute,
            tokens_per_minute=model.tokens_per_minute or provider.tokens_per_minute,
            shared=Limits(*astuple(provider.shared)),
            max_tokens_field=model.max_tokens_field or provider.max_tokens_field,
            batch_share=Decimal(share) if share else None,
            request=model.request or provider.request,
            output=model.output or provider.output,
            structured=model.structured or provider.structured,
        )
