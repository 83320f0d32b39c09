"""The catalog file: TOML in, checked tables out, or one line that says what is wrong where."""

import tomllib
from decimal import Decimal
from typing import Any

from pydantic import ValidationError

from aegish_dist.errors import CatalogError
from aegish_dist.models.tables import (
    CatalogFile,
    ModelTable,
    PriceTable,
    ProviderTable,
    SharedTable,
    is_model_id,
)

_PROBLEMS = {
    "missing": "is missing",
    "is_instance_of": "must be a number",
    "dict_type": "must be a table",
    "model_type": "must be a table",
    "string_pattern_mismatch": "must be of lower-case letters, digits, '.', '_' and '-'",
}
"""The words of pydantic that suit Python better than TOML, by its error types."""


def parse_catalog(text: str, source: str) -> CatalogFile:
    """Parse and check one catalog file.

    Args:
        text: TOML.
        source: What errors call the file.

    Raises:
        CatalogError: It is malformed; names file, table and key.
    """
    try:
        raw = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{source}: not valid TOML: {error}") from error
    try:
        catalog = CatalogFile.model_validate(raw)
    except ValidationError as error:
        raise CatalogError(f"{source}: {_describe(error, raw)}") from None
    _refuse_duplicates(catalog.models, source)
    return catalog


def _refuse_duplicates(models: list[ModelTable], source: str) -> None:
    first_use: dict[str, int] = {}
    for number, model in enumerate(models, start=1):
        first = first_use.setdefault(model.id, number)
        if first != number:
            problem = f"'{model.id}' is already entry {first}; merge the two"
            raise CatalogError(f"{source}: [[models]] entry {number}: key 'id': {problem}")


def _describe(error: ValidationError, raw: dict[str, Any]) -> str:
    """Say where and what of the first problem, without the value."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    table, keys = _table(first["loc"], raw)
    problem = _PROBLEMS.get(first["type"], first["msg"].removeprefix("Value error, "))
    if first["type"] == "extra_forbidden":
        problem = f"unknown key; known are {', '.join(_known_keys(first['loc']))}"
    where = f"{table}: key '{'.'.join(keys)}'" if keys else table
    return f"{where}: {problem}"


def _table(location: tuple[int | str, ...], raw: dict[str, Any]) -> tuple[str, list[str]]:
    """Split a location into the table's heading and the keys inside it."""
    parts = [str(part) for part in location if part != "[key]"]
    match location:
        case ("providers", str(name), *_):
            return f"[providers.{name}]", parts[2:]
        case ("models", int(index), *_):
            entry = raw["models"][index]
            model = entry.get("id") if isinstance(entry, dict) else None
            known = f" ({model})" if isinstance(model, str) and is_model_id(model) else ""
            return f"[[models]] entry {index + 1}{known}", parts[2:]
    return "top level", parts


def _known_keys(location: tuple[int | str, ...]) -> list[str]:
    match location:
        case ("providers", _, "shared", _):
            return list(SharedTable.model_fields)
        case ("providers", _, _):
            return list(ProviderTable.model_fields)
        case ("models", _, "price", _):
            return list(PriceTable.model_fields)
        case ("models", _, _):
            return list(ModelTable.model_fields)
    return list(CatalogFile.model_fields)
