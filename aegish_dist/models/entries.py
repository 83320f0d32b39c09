"""The tables of a catalog file, each as a type: what they may hold, checked by itself.

A provider's table has the type of its wire, so that a key of another wire fails by its type.
Messages never repeat a value: people paste keys into the wrong place.
"""

import json
import math
import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar

from msgspec import Meta, Struct, convert, field
from msgspec.structs import force_setattr, replace

from aegish_dist.core.model import (
    ARM_MARK,
    CallParameters,
    Limits,
    MaxTokensField,
    ModelSpec,
    Program,
    Structured,
    WireFormat,
    is_amount,
)
from aegish_dist.core.output import OUTPUT_KINDS, ActionJson, Label, Logprobs, Output, with_kind
from aegish_dist.core.run import COMMAND_SLOT
from aegish_dist.core.secrets import host_of, is_metadata, origin
from aegish_dist.core.text import JsonObject, did_you_mean
from aegish_dist.errors import InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.models.prices import PriceEntry
from aegish_dist.opinions.mapping import pattern_problem

_PROVIDER = r"[a-z0-9][a-z0-9._-]*"
_SEGMENT = r"[A-Za-z0-9~@][A-Za-z0-9._:@+-]*"
_PROVIDER_NAME = re.compile(_PROVIDER)
_MODEL_ID = re.compile(rf"{_PROVIDER}(?:/{_SEGMENT})+")
_ARM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")
# Upper case only: some providers' keys would pass for lower-case names.
_ENVIRONMENT_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
RESERVED_PREFIX = "AEGISH_DIST_"  # of this program: their passwords are sent to no provider
MAX_ID_LENGTH = 200

Keys = Mapping[str, Any]  # those a table gives, as TOML holds them
Entry = TypeVar("Entry", bound="ProviderEntry | ModelEntry")
Tokens = Annotated[int, Meta(ge=0, le=10_000_000)]
Share = Annotated[int, Meta(ge=0, le=1)] | Decimal
Argument = Annotated[str, Meta(min_length=1, pattern=r"\A[^\0]*\Z")]

CHAT = frozenset(wire for wire in WireFormat if wire.reads_prompt)
PROGRAMS = frozenset({WireFormat.EXEC, WireFormat.PYTHON})


def is_model_id(text: str) -> bool:
    """Whether the text has the form PROVIDER/MODEL; segments of dots alone are refused."""
    return len(text) <= MAX_ID_LENGTH and _MODEL_ID.fullmatch(text) is not None


def is_arm(text: str) -> bool:
    return len(text) <= MAX_ID_LENGTH and _ARM.fullmatch(text) is not None


def is_contender(text: str) -> bool:
    """Whether the text is a model id, with or without an arm."""
    base, mark, arm = text.partition(ARM_MARK)
    return is_model_id(base) and (not mark or is_arm(arm))


def is_provider_name(text: str) -> bool:
    return text != "policy" and _PROVIDER_NAME.fullmatch(text) is not None


def provider_name(model_id: str) -> str:
    return model_id.partition("/")[0]


def api_root(url: str) -> str:
    """Return a base URL without its trailing slash; an InputError does not repeat it."""
    if origin(url) is None:
        form = "in ASCII with a host and without user, query or fragment"
        raise InputError(f"must be an http or https URL {form}", field="base_url")
    if is_metadata(host_of(url)):
        raise InputError("must not be a link-local or metadata address", field="base_url")
    return url.rstrip("/")


def _as_json(value: object) -> Any:
    """Return a value as a request body holds it: TOML's fractions are read as Decimal."""
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, Decimal | float) and math.isfinite(value):
        return float(value)
    if not isinstance(value, str | int):
        raise InputError("dates, times, inf and nan have no JSON form", field="parameters")
    return value


class LimitsEntry(Limits, frozen=True, forbid_unknown_fields=True):
    """`Limits` of a model; `[providers.NAME.shared]` has them over all models together."""


class _CalledEntry(LimitsEntry, frozen=True, kw_only=True):
    """Keys of providers and models alike."""

    base_url: str = ""  # without a trailing slash
    plain_http: bool = False  # the key may go unencrypted to other machines
    max_tokens_field: MaxTokensField | None = None  # for OpenAI's wire format; None: by the host
    batch_share: Share | None = None  # of the price of a call; 0: no batches
    output: Output | None = None  # None: the JSON that our prompts ask for
    structured: Structured | None = None  # None: only the prompt says what to answer
    notes: str = ""

    def __post_init__(self) -> None:
        share = self.batch_share
        if isinstance(share, Decimal) and not is_amount(share, 1):
            raise InputError("must be from 0 to 1", field="batch_share")
        if self.base_url:
            force_setattr(self, "base_url", api_root(self.base_url))


class ProviderEntry(_CalledEntry, frozen=True, kw_only=True):
    """A provider of chat models, and the baselines."""

    wire: WireFormat = WireFormat.OPENAI
    key_variable: str = ""  # empty when no key is needed
    shared: LimitsEntry = LimitsEntry()  # over all its models together
    cache_from_tokens: Tokens = 0
    genai_prices: str = ""  # its name there; empty: the same
    simulated: bool = False  # it has the models that are listed, no other

    def __post_init__(self) -> None:
        super().__post_init__()
        problem = self._problem_of_key_variable() if self.key_variable else ""
        if problem:
            raise InputError(problem, field="key_variable")
        if self.wire.http is not None and not self.base_url:
            raise InputError("is missing", field="base_url")

    def _problem_of_key_variable(self) -> str:
        if not _ENVIRONMENT_VARIABLE.fullmatch(self.key_variable):
            return "must be the name of an environment variable in upper case, not a key"
        if self.key_variable.startswith(RESERVED_PREFIX):
            return f"must not begin with {RESERVED_PREFIX}: that is a setting of this program"
        if self.wire in PROGRAMS:
            return "is not passed to a program: name it in 'pass_variables'"
        return ""


class HttpEntry(ProviderEntry, frozen=True, kw_only=True):
    """Classifiers behind an address."""

    # The document to send, in which `{command}` stands once.
    request: JsonObject

    def __post_init__(self) -> None:
        super().__post_init__()
        force_setattr(self, "request", _document(self.request))


class ProgramEntry(ProviderEntry, frozen=True, kw_only=True):
    """A program of the worker's operator; `Program` explains the keys."""

    mode: Literal["once", "lines"] = "once"
    input: Literal["hook", "json", "text"] = "json"
    processes: Annotated[int, Meta(ge=1, le=64)] = 1
    memory_mb: Annotated[int, Meta(ge=16, le=2**20)] = 512
    pass_variables: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for variable in self.pass_variables:
            is_name = _ENVIRONMENT_VARIABLE.fullmatch(variable) is not None
            if not is_name or variable.startswith(RESERVED_PREFIX):
                form = f"names of environment variables, none that begins {RESERVED_PREFIX}"
                raise InputError(f"must hold {form}", field="pass_variables")

        if not all(path.startswith("/") and "\0" not in path for path in self.writes):
            form = "must hold absolute paths, such as '/var/cache/guard'"
            raise InputError(form, field="writes")

        if self.mode == "lines" and self.input == "text":
            raise InputError("must be 'json' or 'hook': lines need an id", field="input")

    @property
    def program(self) -> Program:
        return convert(self, Program, from_attributes=True)


class ExecEntry(ProgramEntry, frozen=True, kw_only=True):
    command: Annotated[tuple[Argument, ...], Meta(min_length=1)]


class PythonEntry(ProgramEntry, frozen=True, kw_only=True):
    object: Annotated[str, Meta(pattern=r"\A\w+(?:\.\w+)*:\w+(?:\.\w+)*\Z")]  # `module:name`

    @property
    def command(self) -> tuple[str, ...]:
        return (self.object,)


# The types of providers whose wire has keys of its own.
_PROVIDERS: Mapping[str, type[ProviderEntry]] = {
    WireFormat.HTTP: HttpEntry,
    WireFormat.EXEC: ExecEntry,
    WireFormat.PYTHON: PythonEntry,
}


class ModelEntry(_CalledEntry, frozen=True, kw_only=True):
    id: str
    # In requests; None: the id without its provider.
    name: Annotated[str, Meta(min_length=1)] | None = None
    default: bool = False
    reference: bool = False
    price: PriceEntry | None = None
    request: JsonObject | None = None  # as of `HttpEntry`; None: as for its provider
    parameters: JsonObject = field(default_factory=dict)
    # Fields of the request body that the model refuses.
    drop_parameters: list[str] = field(default_factory=list)
    cache_from_tokens: Tokens | None = None  # None: as for its provider
    takes_temperature: bool = True
    prompt: str | None = None  # bundled or a file beside the catalog; None: the run's
    # Keys laid over those of the model, by the name of the arm.
    variants: dict[str, JsonObject] = field(default_factory=dict)
    retires: date | None = None  # answers end; None: none announced
    simulated: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not is_model_id(self.id):
            raise InputError("must have the form provider/model", field="id")
        for name, keys in self.variants.items():
            field = f"variants.{name}"
            if not is_arm(name):
                form = "must be named by letters, digits, '.', '_', '-' and '+'"
                raise InputError(form, field=field)
            for key in keys:
                if key in _OF_ALL_ARMS:
                    same = "is the same for all variants: give it to the model"
                    raise InputError(same, field=f"{field}.{key}")

        if self.request is not None:
            force_setattr(self, "request", _document(self.request))
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
    "id",
    "variants",
    "price",
    "batch_share",
    "cache_from_tokens",
    "base_url",
    "plain_http",
    "default",
    "reference",
    "retires",
    "simulated",
}


def _document(request: JsonObject) -> JsonObject:
    document: JsonObject = _as_json(request)
    if json.dumps(document).count(COMMAND_SLOT) != 1:
        raise InputError(f"must hold {COMMAND_SLOT} once", field="request")
    return document


def checked_provider(keys: Keys) -> ProviderEntry:
    """Turn the table of a provider into the type of its wire."""
    wire = str(keys.get("wire"))
    return _checked(keys, _PROVIDERS.get(wire, ProviderEntry))


def checked_model(keys: Keys) -> ModelEntry:
    return _checked(keys, ModelEntry)


def _checked(keys: Keys, kind: type[Entry]) -> Entry:
    output = keys.get("output")
    if isinstance(output, dict):
        try:
            keys = {**keys, "output": checked_mapping(output)}
        except InputError as error:
            raise error.below("output") from None

    _require_known(keys, kind)
    # Decimals stay what they are; otherwise a text would do for a price.
    return checked(keys, kind, exact=(Decimal,))


def _require_known(keys: Keys, kind: type[Struct]) -> None:
    """Refuse a key that a type does not have, and name those that it has."""
    known = kind.__struct_fields__
    for key in keys:
        if key not in known:
            hint = did_you_mean(key, known, f"known are {', '.join(known)}")
            raise InputError(f"unknown key; {hint}", field=key)


def checked_mapping(keys: Keys) -> Output:
    """Turn a mapping of answers into the type of its kind."""
    own: JsonObject = with_kind(dict(keys))
    kind = OUTPUT_KINDS.get(str(own.pop("kind")))
    if kind is None:
        kinds = ", ".join(map(repr, OUTPUT_KINDS))
        raise InputError(f"must be one of {kinds}", field="kind")

    _require_known(own, kind)
    mapping = checked(own, kind, exact=(Decimal,))
    if isinstance(mapping, Label):
        for number, (pattern, _) in enumerate(mapping.patterns):
            if problem := pattern_problem(pattern):
                raise InputError(problem, field=f"patterns[{number}]", text=pattern)

    return mapping


# Keys of a provider that hold for its models, unless a model gives them itself.
_INHERITED = (
    *LimitsEntry.__struct_fields__,
    "max_tokens_field",
    "batch_share",
    "cache_from_tokens",
    "request",
    "output",
    "structured",
)


def inheriting(model: ModelEntry, provider: ProviderEntry) -> ModelEntry:
    """Return a model with what its provider says where the model says nothing."""
    missing = [key for key in _INHERITED if getattr(model, key) is None]
    return replace(model, **{key: getattr(provider, key, None) for key in missing})


def require_chat(entry: ProviderEntry | ModelEntry, wire: WireFormat) -> None:
    """Refuse `structured` without the JSON that our prompts ask for, and tokens that none sends."""
    output = entry.output
    if isinstance(output, Logprobs) and wire is not WireFormat.OPENAI:
        raise InputError(f"wire '{wire}' sends no log probabilities", field="output")
    if entry.structured is None:
        return
    if not wire.reads_prompt:
        raise InputError(f"wire '{wire}' knows none", field="structured")
    if output is not None and not isinstance(output, ActionJson):
        clash = f"asks for kind 'action-json', and 'output' reads '{output.kind}'"
        raise InputError(clash, field="structured")
