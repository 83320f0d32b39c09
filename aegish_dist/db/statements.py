"""The named SQL statements of the files in `db/sql`.

`-- name: count_verdicts` begins a statement, `-- fragment: answered` a part that several statements
share; the comment after it says what it returns. `{answered}` stands for a fragment, and
`{time_of(queue)}` for one whose parameter is `queue`. Values are never part of the text: `:model`
is bound when the statement is executed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import NamedTuple

from sqlalchemy import TextClause, text

_HEAD = re.compile(r"^-- (?:name|fragment): (\w+)(?:\((\w+)\))?\n(?:--.*\n)+", re.MULTILINE)
_USE = re.compile(r"\{(\w+)(?:\((\w+)\))?\}")


class _Part(NamedTuple):
    """A statement or a fragment as it stands in its file."""

    parameter: str | None
    """Name of the parameter of a fragment that has one."""
    sql: str
    """Its text; fragments stand in it by name."""


def _parts() -> Iterator[tuple[str, _Part]]:
    for file in files("aegish_dist.db").joinpath("sql").iterdir():
        content = file.read_text(encoding="utf-8")
        heads = list(_HEAD.finditer(content))
        ends = [head.start() for head in heads[1:]] + [len(content)]
        for head, end in zip(heads, ends, strict=True):
            yield head[1], _Part(head[2], content[head.end() : end].strip())


_PARTS = dict(_parts())


def statement(
    name: str, sql: Mapping[str, str] = MappingProxyType({}), /, **fragments: str
) -> TextClause:
    """Return the statement of a name.

    Args:
        sql: By the name that the statement uses, the SQL to put there: a list of columns.
        fragments: By the name that the statement uses, the fragment to put there.

    Raises:
        KeyError: No file has the statement, or a fragment that it uses.
    """
    given = {use: fragment(of) for use, of in fragments.items()} | {**sql}
    return text(_expanded(_PARTS[name].sql, given))


def fragment(name: str, argument: str = "") -> str:
    """Return the SQL of a fragment.

    Args:
        argument: SQL that replaces its parameter, if it has one.
    """
    part = _PARTS[name]
    return _expanded(part.sql, {} if part.parameter is None else {part.parameter: argument})


def _expanded(sql: str, given: Mapping[str, str]) -> str:
    """Put fragments, and what is given, in place of their names."""

    def expand(use: re.Match[str]) -> str:
        name, argument = use.groups()
        return given[name] if name in given else fragment(name, argument)

    return _USE.sub(expand, sql)


@dataclass(frozen=True, slots=True)
class CountingStatement:
    """A statement about the verdicts of one model, by which of them it counts."""

    every: TextClause
    newest: TextClause
    """Of each item the verdict of its newest generation."""
    superseded: TextClause


def counting_statement(name: str) -> CountingStatement:
    """Return the statement of a name that uses `{counts}`; see `statement`."""
    return CountingStatement(
        every=statement(name, counts="every"),
        newest=statement(name, counts="newest"),
        superseded=statement(name, counts="superseded"),
    )
