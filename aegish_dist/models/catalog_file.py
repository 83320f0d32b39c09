"""Catalog files: TOML in, the entries of the packaged file and a user's out, the latter on top.

Every key of a user's entry replaces the packaged one; keys that it leaves out stay. Messages name
file, table and key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from aegish_dist.errors import CatalogError, InputError
from aegish_dist.inputs.checking import checked
from aegish_dist.inputs.documents import parse_toml
from aegish_dist.inputs.files import read_text
from aegish_dist.models.entries import (
    ModelEntry,
    ProviderEntry,
    is_model_id,
    is_provider_name,
    provider_name,
)

MAX_FILE_BYTES = 4 * 2**20
"""Size of a user's catalog at most."""
PACKAGED = "packaged catalog"
Keys = Mapping[str, Any]
"""The keys that a table gives, as TOML holds them."""
Entry = TypeVar("Entry", bound=ModelEntry | ProviderEntry)


@dataclass(frozen=True, slots=True)
class Entries:
    """The content of a catalog."""

    providers: Mapping[str, ProviderEntry]
    """By name; every one but the baselines has a base URL."""
    models: Mapping[str, ModelEntry]
    """By id, in file order, packaged ones first; every one's provider is known."""


@dataclass(frozen=True, slots=True)
class _Tables:
    """The tables of one file, checked, each with no more than the keys it gives."""

    providers: Mapping[str, Keys] = field(default_factory=dict)
    models: Mapping[str, Keys] = field(default_factory=dict)


def read_entries(path: Path | None) -> Entries:
    """Read the packaged catalog and lay the user's over it.

    Args:
        path: The user's file; None for the packaged catalog alone.

    Raises:
        CatalogError: The user's file cannot be read or is malformed; names file, table and key.
    """
    base = _parse(files(__package__).joinpath("catalog.toml").read_text("utf-8"), PACKAGED)
    if path is None:
        return _overlaid(base, _Tables(), PACKAGED)
    try:
        text = read_text(path, MAX_FILE_BYTES)
    except InputError as error:
        raise CatalogError(f"{path}: {error}") from None
    return _overlaid(base, _parse(text, str(path)), str(path))


def _parse(text: str, source: str) -> _Tables:
    try:
        top = checked(parse_toml(text, parse_float=Decimal), _Top)
        return _Tables(_providers(top.providers), _models(top.models))
    except InputError as error:
        where = f"top level: {error}" if error.field else str(error)
        raise CatalogError(f"{source}: {where}") from None
    except CatalogError as error:
        raise CatalogError(f"{source}: {error}") from None


class _Top(Struct, forbid_unknown_fields=True):
    """The top level; its tables are checked one by one, which names them in messages."""

    providers: dict[str, Any] = {}
    models: list[Any] = []


def _providers(tables: dict[str, Any]) -> dict[str, Keys]:
    for name, keys in tables.items():
        heading = f"[providers.{name}]"
        if not is_provider_name(name):
            allowed = "lower-case letters, digits, '.', '_' and '-'"
            raise CatalogError(f"{heading}: must be of {allowed}")
        _entry(keys, ProviderEntry, heading)
    return tables


def _models(tables: list[Any]) -> dict[str, Keys]:
    numbers: dict[str, int] = {}
    for number, keys in enumerate(tables, start=1):
        model = keys.get("id") if isinstance(keys, dict) else None
        known = f" ({model})" if isinstance(model, str) and is_model_id(model) else ""
        _entry(keys, ModelEntry, f"[[models]] entry {number}{known}")
        first = numbers.setdefault(keys["id"], number)
        if first != number:
            clash = f"'{model}' is already entry {first}; merge the two"
            raise CatalogError(f"[[models]] entry {number}: key 'id': {clash}")
    return {keys["id"]: keys for keys in tables}


def _entry(keys: object, kind: type[Entry], heading: str) -> Entry:
    """Check a table and give it its defaults."""
    try:
        # Decimals stay what they are; otherwise a text would do for a price.
        return checked(keys, kind, exact=(Decimal,))
    except InputError as error:
        raise CatalogError(f"{heading}: {error}") from None


def _overlaid(base: _Tables, over: _Tables, source: str) -> Entries:
    providers = {
        name: _entry(keys, ProviderEntry, name)
        for name, keys in _by_key(base.providers, over.providers).items()
    }
    models = {
        model_id: _entry(keys, ModelEntry, model_id)
        for model_id, keys in _by_key(base.models, over.models).items()
    }
    for name, provider in providers.items():
        if provider.wire.http is not None and not provider.base_url:
            raise CatalogError(f"{source}: [providers.{name}]: key 'base_url' is missing")
    for model_id in models:
        name = provider_name(model_id)
        if name not in providers:
            raise CatalogError(
                f"{source}: [[models]] '{model_id}': key 'id': unknown provider '{name}'; "
                f"add a table [providers.{name}]"
            )
    return Entries(providers, models)


def _by_key(base: Mapping[str, Keys], over: Mapping[str, Keys]) -> dict[str, Keys]:
    """Lay tables over others, key by key."""
    return {name: {**base.get(name, {}), **over.get(name, {})} for name in {**base, **over}}
