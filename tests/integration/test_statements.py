"""Every named statement against the real schema, so that none goes stale."""

import re
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from aegish_dist.db.engine import fragment, statement
from aegish_dist.db.schema import COLUMNS, ERROR_COLUMNS

FILES = [file.read_text() for file in files("aegish_dist.db").joinpath("sql").iterdir()]
NAMED = re.compile(r"^-- name: (\w+)\n((?:--.*\n)*)([^-].*(?:\n.*)*?)(?=\n-- |\Z)", re.MULTILINE)
STATEMENTS = {name: sql for content in FILES for name, _, sql in NAMED.findall(content)}
COUNTING = sorted(name for name, sql in STATEMENTS.items() if "{counts}" in sql)
PLAIN = sorted(STATEMENTS.keys() - set(COUNTING))

PRODUCT = "\n".join(file.read_text() for file in Path(str(files("aegish_dist"))).rglob("*.py"))
USED = re.compile(r'(?:execute|newest|superseded)\(\s*[\w.]+,\s*"(\w+)"|statement\(\s*"(\w+)"')

SQL = {
    "columns": "verdict.epoch",
    "fields": "int8send(verdict.sample_key)",
    "attempt": "'attempt', attempt",
    "lock": "FOR NO KEY UPDATE OF verdict",
    "within": fragment("of_these_names"),
    "of_verdicts": ", ".join(COLUMNS),
    "of_errors": ", ".join(ERROR_COLUMNS),
}
"""What statements leave to their user."""


def execute(session: Session, sql: str) -> None:
    """Execute a statement of the store with NULL for every value, whose type the schema knows."""
    with suppress(IntegrityError):  # of a statement that is accepted, but for the NULLs
        session.execute(text(sql), dict.fromkeys(re.findall(r"(?<![:\w]):(\w+)", sql)))


def test_every_statement_has_a_name_and_a_sentence() -> None:
    heads = sum(content.count("-- name: ") for content in FILES)
    sentences = [sentence for content in FILES for _, sentence, _ in NAMED.findall(content)]
    assert heads == len(STATEMENTS) == len(sentences)
    assert all(sentence.strip() for sentence in sentences)


@pytest.mark.parametrize("name", PLAIN)
def test_a_statement_is_accepted_by_the_schema(session: Session, name: str) -> None:
    execute(session, statement(name, **SQL).text)


@pytest.mark.parametrize("which", ["every", "newest", "superseded"])
@pytest.mark.parametrize("name", COUNTING)
def test_a_counting_statement_is_accepted(session: Session, name: str, which: str) -> None:
    execute(session, statement(name, **SQL, counts=fragment(which)).text)


def test_a_statement_that_no_file_has() -> None:
    with pytest.raises(KeyError, match="no_such_statement"):
        statement("no_such_statement")
    with pytest.raises(KeyError, match="no_such_fragment"):
        fragment("no_such_fragment")


def test_the_product_uses_all_statements_and_no_others() -> None:
    assert {name for found in USED.findall(PRODUCT) for name in found if name} <= set(STATEMENTS)
    assert {name for name in STATEMENTS if f'"{name}"' not in PRODUCT} == set()


def test_values_are_bound() -> None:
    sql = statement("count_progress", counts=fragment("newest"))
    assert sql.compile().params.keys() == {"model", "window_s"}
