"""The catalog file: TOML in, checked tables out, or one line that says what is wrong where."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, TypeVar

import msgspec

from aegish_dist.core.checking import problem
from aegish_dist.errors import CatalogError
from aegish_dist.inputs.toml import parse_toml
from aegish_dist.models.tables import ModelTable, ProviderTable, is_model_id, is_provider_name

Keys = Mapping[str, Any]
"""The keys that a table gives, as TOML holds them."""
Table = TypeVar("Table", bound=ModelTable | ProviderTable)
_TOP = ("providers", "models")


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """The tables of one file, checked, each with no more than the keys it gives."""

    providers: Mapping[str, Keys] = field(default_factory=dict)
    """By name."""
    models: Mapping[str, Keys] = field(default_factory=dict)
    """By id, in the order of the file."""


def table(keys: Keys, kind: type[Table]) -> Table:
    """Give a table its defaults.

    Raises:
        msgspec.ValidationError: A key is wrong.
    """
    # Decimals stay what they are; otherwise a text would do for a price.
    return msgspec.convert(keys, kind, builtin_types=(Decimal,))


def parse_catalog(text: str, source: str) -> CatalogFile:
    """Parse and check one catalog file.

    Args:
        text: TOML.
        source: What errors call the file.

    Raises:
        CatalogError: It is malformed; names file, table and key.
    """
    try:
        raw = parse_toml(text, parse_float=Decimal)
    except ValueError as error:
        raise CatalogError(f"{source}: not valid TOML: {error}") from error
    try:
        return _checked(raw)
    except RecursionError:
        # Dotted keys nest without brackets, which the parser's own limit does not see.
        raise CatalogError(f"{source}: is nested too deeply") from None
    except CatalogError as error:
        raise CatalogError(f"{source}: {error}") from None


def _checked(raw: dict[str, Any]) -> CatalogFile:
    for key in raw:
        if key not in _TOP:
            known = ", ".join(_TOP)
            raise CatalogError(f"top level: key '{key}': unknown key; known are {known}")
    providers, models = raw.get("providers", {}), raw.get("models", [])
    if not isinstance(providers, dict):
        raise CatalogError("top level: key 'providers': must be a table")
    if not isinstance(models, list):
        raise CatalogError("top level: key 'models': must be a list of tables, [[models]]")
    return CatalogFile(_providers(providers), _models(models))


def _providers(raw: dict[str, Any]) -> dict[str, Keys]:
    for name, keys in raw.items():
        heading = f"[providers.{name}]"
        if not is_provider_name(name):
            allowed = "lower-case letters, digits, '.', '_' and '-'"
            raise CatalogError(f"{heading}: must be of {allowed}")
        _check(keys, ProviderTable, heading)
    return raw


def _models(raw: list[Any]) -> dict[str, Keys]:
    entries: dict[str, int] = {}
    for number, keys in enumerate(raw, start=1):
        model = keys.get("id") if isinstance(keys, dict) else None
        known = f" ({model})" if isinstance(model, str) and is_model_id(model) else ""
        _check(keys, ModelTable, f"[[models]] entry {number}{known}")
        first = entries.setdefault(keys["id"], number)
        if first != number:
            clash = f"'{model}' is already entry {first}; merge the two"
            raise CatalogError(f"[[models]] entry {number}: key 'id': {clash}")
    return {keys["id"]: keys for keys in raw}


def _check(keys: object, kind: type[ModelTable | ProviderTable], heading: str) -> None:
    if not isinstance(keys, dict):
        raise CatalogError(f"{heading}: must be a table")
    try:
        table(keys, kind)
    except msgspec.ValidationError as error:
        path, what = problem(error, kind)
        where = f"{heading}: key '{path}'" if path else heading
        raise CatalogError(f"{where}: {what}") from None
