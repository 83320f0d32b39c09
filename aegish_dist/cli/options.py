"""Options that several commands share."""

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeVar

import click

Function = TypeVar("Function", bound=Callable[..., Any])


class Utf8(click.types.StringParamType):
    """Text that the store can hold; what a shell passes on may be any bytes."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what is not UTF-8."""
        text = str(super().convert(value, param, ctx))
        try:
            text.encode()
        except UnicodeEncodeError:
            self.fail("it is not UTF-8", param, ctx)
        return text


class FiniteRange(click.FloatRange):
    """A range of numbers; `nan`, which no bound keeps out, and `inf` are none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Refuse what is not a finite number."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


def cost_cap(name: str, text: str) -> Callable[[Function], Function]:
    """Return an option that caps costs in USD."""
    return click.option(name, type=FiniteRange(0, min_open=True), metavar="USD", help=text)


def usd(amount: float | None) -> Decimal | None:
    """Return an amount of money as it was typed."""
    return None if amount is None else Decimal(str(amount))


MAX_INTEGER = 2**31 - 1
"""The largest that PostgreSQL's `integer` holds."""

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


def run_id(*, default: str | None = None) -> Callable[[Function], Function]:
    """Return the option that names a run."""
    # A default of None would count as a default, and nothing would be required.
    presence: dict[str, Any] = (
        {"required": True} if default is None else {"default": default, "show_default": True}
    )
    return click.option(
        "--run-id",
        type=Utf8(),
        metavar="R",
        help="A run's id, a unique prefix of it, or `latest`.",
        **presence,
    )


def comma_list(_: click.Context, __: click.Parameter, value: str | tuple[str, ...]) -> list[str]:
    """Split values at commas, for options that may be repeated as well."""
    values = (value,) if isinstance(value, str) else value or ()
    return [part.strip() for text in values for part in text.split(",") if part.strip()]
