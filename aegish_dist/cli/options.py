"""Options that several commands share."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def run_id(*, default: str | None = None) -> Callable[[Function], Function]:
    """Return the option that names a run."""
    return click.option(
        "--run-id",
        required=default is None,
        default=default,
        show_default=default is not None,
        metavar="R",
        help="A run's id, a unique prefix of it, or `latest`.",
    )


def comma_list(_: click.Context, __: click.Parameter, value: str | tuple[str, ...]) -> list[str]:
    """Split values at commas, for options that may be repeated as well."""
    values = (value,) if isinstance(value, str) else value or ()
    return [part.strip() for text in values for part in text.split(",") if part.strip()]
