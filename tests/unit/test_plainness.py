"""One thought per statement: what is not written plainly is listed by module, and the list shrinks."""

import ast

import pytest

from tests.house import FILE, OFFENCES, offence_changes, read_house, sum_of_offences
from tests.recorded import lines_of

HOUSE = read_house(FILE.read_text(encoding="utf-8"))


def test_what_is_not_plain_is_listed_and_nothing_else() -> None:
    """What is more has to be written as house style says; `python -m tests.house --lower` lowers
    what has become less.
    """
    assert list(offence_changes(HOUSE)) == []


def test_the_list_only_shrinks() -> None:
    """Its sum stands above it; a kind that the list alone knows counts too."""
    assert sum_of_offences(HOUSE.offences) == HOUSE.sum_of_offences
    assert set(HOUSE.offences) <= set(OFFENCES)


@pytest.mark.parametrize(
    ("kind", "code", "number"),
    lines_of("plain_code.jsonl"),
)
def test_a_kind_is_counted(kind: str, code: str, number: int) -> None:
    assert OFFENCES[kind](ast.parse(code)) == number
