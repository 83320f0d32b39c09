"""Text that PostgreSQL refuses, through a real table."""

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, Text, literal_column, select

from aegish_dist.db.text import AnyText

NOTES = Table("notes", MetaData(), Column("id", Integer, primary_key=True), Column("body", AnyText))

TEXTS = [
    "",
    "rm -rf / # ünïcödé 🦠",
    "a\x00b",
    "\x00",
    "\ud800 high, \udfff low",
    "\udc00\ud800",
    "\ue000",
    "\ue0000000",
    "\ue000d800",
    "x" * 300_000 + "\x00",
    None,
]


@pytest.mark.parametrize("original", TEXTS, ids=lambda text: ascii(text)[:20])
def test_any_text_comes_back(engine: Engine, original: str | None) -> None:
    """Text is read as it was written, code point by code point."""
    with engine.begin() as connection:
        NOTES.create(connection)
        connection.execute(NOTES.insert().values(id=1, body=original))
        restored = connection.execute(select(NOTES.c.body)).scalar_one()

    assert restored == original


def test_ordinary_text_is_stored_as_it_is(engine: Engine) -> None:
    """SQL sees text without the three special kinds unchanged."""
    with engine.begin() as connection:
        NOTES.create(connection)
        connection.execute(NOTES.insert().values(id=1, body="naïve 🦠\n\t\\x00"))
        stored = connection.execute(select(literal_column("body::text", Text)).select_from(NOTES))

        assert stored.scalar_one() == "naïve 🦠\n\t\\x00"


def test_equality_is_of_the_original(engine: Engine) -> None:
    """A comparison in SQL escapes its parameter like the column."""
    with engine.begin() as connection:
        NOTES.create(connection)
        connection.execute(NOTES.insert(), [{"id": 1, "body": "a\x00"}, {"id": 2, "body": "a"}])

        found = connection.execute(select(NOTES.c.id).where(NOTES.c.body == "a\x00")).scalars()

        assert found.all() == [1]
