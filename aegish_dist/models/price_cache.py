"""List prices remembered for a day, because looking them up takes half the time of a command.

genai-prices brings a validation library and an HTTP client along, and builds the prices of a
thousand models to find one. What a command has found is kept in a file for the next one. The file
counts only for the prices that are installed now and for the UTC day on which it was written, as
prices change with dates; those that change with the time of day are never kept.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import msgspec

from aegish_dist import __version__
from aegish_dist.core.cost import Price
from aegish_dist.errors import OutputError
from aegish_dist.files import replacing
from aegish_dist.models.prices import changes_within_a_day, list_price

PriceOf = Callable[[str, str], Price | None]
"""Takes a provider's name in genai-prices and the model's name in requests; see `list_price`."""


class Remembered(msgspec.Struct):
    """The file."""

    installed: str
    """Which prices were installed; see `installed_prices`."""
    day: str
    """UTC date that the prices are of."""
    prices: dict[str, Price | None] = {}
    """By provider and name; None for a model without a list price."""


def installed_prices() -> str:
    """Identify the installed price list by its file, without importing it; empty if it has none."""
    package = find_spec("genai_prices")
    if package is None or package.origin is None:
        return ""
    data = Path(package.origin).with_name("data.py")
    try:
        found = data.stat()
    except OSError:
        return ""
    return f"{__version__} {data} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}"


@contextmanager
def remembered_prices(path: Path | None, at: datetime) -> Iterator[PriceOf]:
    """Give a look-up of list prices that asks the price list only for what the file lacks.

    Args:
        path: The file; None remembers nothing. One that cannot be read or written does no harm.
        at: When, with a time zone.
    """
    kept = Remembered(installed_prices(), at.astimezone(UTC).date().isoformat())
    if not kept.installed:
        path = None
    if path is not None:
        kept.prices = _read(path, kept)
    known = len(kept.prices)

    def price_of(provider: str, name: str) -> Price | None:
        key = f"{provider} {name}"
        if key not in kept.prices:
            price = list_price(provider, name, at)
            if changes_within_a_day(provider, name):
                return price
            kept.prices[key] = price
        return kept.prices[key]

    yield price_of
    if path is not None and len(kept.prices) > known:
        _write(path, kept)


def _read(path: Path, wanted: Remembered) -> dict[str, Price | None]:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Remembered)
    except (OSError, msgspec.DecodeError, RecursionError):
        return {}
    same = (found.installed, found.day) == (wanted.installed, wanted.day)
    return found.prices if same else {}


def _write(path: Path, kept: Remembered) -> None:
    with suppress(OSError, OutputError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as stream:
            stream.write(msgspec.json.encode(kept))
