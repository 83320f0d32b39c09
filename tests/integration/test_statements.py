"""Every named statement against the real schema, so that none goes stale."""

import re
from importlib.resources import files

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from aegish_dist.db.engine import counting_statement, fragment, statement

FILES = [file.read_text() for file in files("aegish_dist.db").joinpath("sql").iterdir()]
NAMED = re.compile(r"^-- name: (\w+)\n((?:--.*\n)*)([^-].*(?:\n.*)*?)(?=\n-- |\Z)", re.MULTILINE)
STATEMENTS = {name: sql for content in FILES for name, _, sql in NAMED.findall(content)}
COUNTING = sorted(name for name, sql in STATEMENTS.items() if "{counts}" in sql)
PLAIN = sorted(STATEMENTS.keys() - set(COUNTING))

FRAGMENTS = {"find_samples": {"within": "of_these_names"}}
"""Fragments for the statements that leave one to their user."""
SQL = {"columns": "verdict.epoch", "attempt": "'attempt', attempt"}
"""Lists of columns for the statements that leave them to their user."""

VALUES: dict[str, object] = {
    "acceptances": [31],
    "detections": [31],
    "scored_codes": [31],
    "seed": "7",
    "settled_s": 3.0,
    **{f"{part}_edges": [0.0] * 9 for part in ("service", "queue", "limiter", "backoff", "total")},
    "actions": [1],
    "lately_s": 60.0,
    "messages": 8,
    "after": 0,
    "alive_s": 10.0,
    "batch": 1,
    "before": None,
    "before_harmless_marks": [0],
    "before_keys": [1],
    "before_malicious_marks": [0],
    "before_targets": [None],
    "bins": 10,
    "categories": ["none"],
    "chars": 10,
    "changed_categories": [None],
    "changed_keys": [1],
    "changed_targets": [None],
    "codes": [31],
    "commands": ["none"],
    "compared": [1],
    "completions": 1,
    "dataset": 1,
    "dataset_name": "none",
    "datasets": [1],
    "disputed": True,
    "draws": 8,
    "epochs": 1,
    "end": 1,
    "first": 0,
    "generation": 1,
    "generations": [0],
    "harmless_marks": [0],
    "id": 1,
    "ids": ["none"],
    "inconsistent_keys": [1],
    "inconsistent_models": [1],
    "key": 1,
    "keys": [1],
    "lease_s": 60.0,
    "limit": 1,
    "malicious_marks": [0],
    "lost_after_s": 60.0,
    "marks": [1],
    "missed": [1],
    "model": 1,
    "models": [1],
    "name": "none",
    "names": ["none"],
    "number": 1,
    "outcomes": [1],
    "pages": 8,
    "pattern": "none",
    "problems": ["none"],
    "fractions": [0.5],
    "refunded": 1,
    "rows": "[]",
    "run": "none",
    "runs": ["none"],
    "scoring": "none",
    "simulated": False,
    "since": None,
    "start": "none",
    "step": 1,
    "table": "runs",
    "targets": ["none"],
    "through": 1,
    "tries": 3,
    "until": None,
    "width_s": 60,
    "window_s": 1.0,
    "worker": "none",
}
"""A value of the right type for every name that a statement binds."""


def make_tables_of_archive(session: Session, sql: str) -> None:
    """Make the temporary tables that restoring an archive makes before a statement."""
    for name in set(re.findall(r"(?:FROM|JOIN) archived_(\w+)", sql)):
        session.execute(text(f"CREATE TEMP TABLE archived_{name} (LIKE {name}) ON COMMIT DROP"))


def execute(session: Session, sql: str) -> None:
    """Execute a statement of the store with values that match no row."""
    make_tables_of_archive(session, sql)
    bound = re.findall(r"(?<![:\w]):(\w+)", sql)
    values = {name: VALUES[name] for name in bound}
    if "CAST(:epochs AS smallint[])" in sql:
        values["epochs"] = [1]
    if "id = ANY(:models)" not in sql:  # by name, not by key
        values["models"] = ["none"]
    session.execute(text(sql), values)


def test_every_statement_has_a_name_and_a_sentence() -> None:
    """The tests below execute the statements of the files."""
    heads = sum(content.count("-- name: ") for content in FILES)
    sentences = [sentence for content in FILES for _, sentence, _ in NAMED.findall(content)]
    assert heads == len(STATEMENTS) == len(sentences)
    assert all(sentence.strip() for sentence in sentences)


@pytest.mark.parametrize("name", PLAIN)
def test_a_statement_is_accepted_by_the_schema(session: Session, name: str) -> None:
    """Tables, columns and types are those of the newest migration."""
    execute(session, statement(name, SQL, **FRAGMENTS.get(name, {})).text)


@pytest.mark.parametrize("which", ["every", "newest", "superseded"])
@pytest.mark.parametrize("name", COUNTING)
def test_a_counting_statement_is_accepted(session: Session, name: str, which: str) -> None:
    """Whichever verdicts it counts."""
    execute(session, statement(name, SQL, counts=which).text)


def test_a_statement_that_no_file_has() -> None:
    """Found out where a module names it, which is when it is imported."""
    with pytest.raises(KeyError, match="no_such_statement"):
        statement("no_such_statement")
    with pytest.raises(KeyError, match="no_such_fragment"):
        fragment("no_such_fragment")


def test_values_are_bound() -> None:
    """A fragment is text; a value never is."""
    names = {name for name, _ in bindparam_names("count_progress")}
    assert names == {"model", "window_s"}


def bindparam_names(name: str) -> list[tuple[str, object]]:
    """Return what a counting statement binds."""
    compiled = counting_statement(name).newest.compile()
    return list(compiled.params.items())
