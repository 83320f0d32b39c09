"""Remembered list prices are those of the price list, or they are not used."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from aegish_dist.core.cost import Price
from aegish_dist.models.prices import Remembered, list_price, remembered_prices

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)
HAIKU = ("anthropic", "claude-haiku-4-5-20251001")
FORGED = Price(per_call=Decimal(7))


def look_up(path: Path | None, at: datetime, provider: str, name: str) -> Price | None:
    with remembered_prices(path, at) as price_of:
        return price_of(provider, name)


def forge(path: Path, **changes: str) -> None:
    """Give every remembered price another value, so that it shows when one is used."""
    kept = msgspec.json.decode(path.read_bytes(), type=Remembered)
    forged = msgspec.structs.replace(kept, prices=dict.fromkeys(kept.prices, FORGED), **changes)
    path.write_bytes(msgspec.json.encode(forged))


@pytest.mark.parametrize("known", [HAIKU, ("google", "gemini-3-pro-preview"), ("openai", "nobody")])
def test_what_is_remembered_equals_the_list(tmp_path: Path, known: tuple[str, str]) -> None:
    """Prices with tiers and unknown ones survive the file."""
    path = tmp_path / "new" / "prices.json"
    expected = list_price(*known, AT)
    assert [look_up(path, AT, *known) for _ in range(2)] == [expected, expected]
    forge(path)
    assert look_up(path, AT, *known) == FORGED


@pytest.mark.parametrize(
    ("changes", "later"),
    [
        ({"installed": "another"}, timedelta()),
        ({"day": "2026-11-19"}, timedelta()),
        ({}, timedelta(hours=12)),
    ],
)
def test_the_file_counts_for_one_list_and_one_day(
    tmp_path: Path, changes: dict[str, str], later: timedelta
) -> None:
    """After an upgrade, and from midnight UTC on, the list is asked again."""
    path = tmp_path / "prices.json"
    look_up(path, AT, *HAIKU)
    forge(path, **changes)
    assert look_up(path, AT + later, *HAIKU) == list_price(*HAIKU, AT + later)


def test_a_price_that_depends_on_the_hour_is_not_kept(tmp_path: Path) -> None:
    """DeepSeek is cheaper at night."""
    path, name = tmp_path / "prices.json", ("deepseek", "deepseek-chat")
    hours = [datetime(2025, 6, 1, hour, tzinfo=UTC) for hour in (4, 20)]
    day, night = (look_up(path, at, *name) for at in hours)
    assert day != night
    assert [list_price(*name, at) for at in hours] == [day, night]
    assert not path.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b'{"installed": 1}', b"[]", b'{"prices": ' + b'{"a": ' * 100_000],
    ids=range(6),
)
def test_a_broken_file_is_replaced(tmp_path: Path, content: bytes) -> None:
    """It neither fails the command nor stays."""
    path = tmp_path / "prices.json"
    path.write_bytes(content)
    assert look_up(path, AT, *HAIKU) == list_price(*HAIKU, AT)
    assert msgspec.json.decode(path.read_bytes(), type=Remembered).prices


def test_a_place_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    """Without a file, prices are looked up each time."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "prices.json", None):
        assert look_up(path, AT, *HAIKU) == list_price(*HAIKU, AT)


def test_a_remembered_price_needs_no_price_list(tmp_path: Path) -> None:
    """The second command of a day does not import genai-prices."""
    code = f"""if True:
        import sys
        from pathlib import Path
        from aegish_dist.models import Catalog
        Catalog.load(None, Path({str(tmp_path / "prices.json")!r})).resolve("all", {{}})
        print("genai_prices" in sys.modules, "pydantic" in sys.modules)"""
    answers = [subprocess.check_output([sys.executable, "-c", code], text=True) for _ in range(2)]
    assert answers == ["True True\n", "False False\n"]
