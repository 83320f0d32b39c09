"""One thought per statement: what is not written plainly is listed by module, and the list shrinks."""

import ast

import pytest

from tests.house import FILE, OFFENCES, offence_changes, read_house, sum_of_offences

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
    [
        ("times_a_condition", "text * bool(x)", 1),
        ("times_a_condition", "('a',) * (x > 1)", 1),
        ("times_a_condition", "(x is None) * [y]", 1),
        ("times_a_condition", "text * (not x) + f'{y * (a and b > 1)}'", 1),
        ("times_a_condition", "text * (a > 1 or not b)", 1),
        ("times_a_condition", "'-' * width + 1.5 * (x > 1)", 0),
        ("star_of_a_literal", "(*('a', 'b'), 'c')", 1),
        ("star_of_a_literal", "f(*(a, b), *[c])", 2),
        ("star_of_a_literal", "f(*names, *sorted((a, b)))", 0),
        ("nested_conditional", "a if b else c if d else e", 1),
        ("nested_conditional", "a if b else f(c if d else e)", 1),
        ("nested_conditional", "(a if b else c) if d else (e if f else g)", 1),
        ("nested_conditional", "[a if b else c, d if e else f]", 0),
        ("condition_in_braces", "f'{a if b else c}'", 1),
        ("condition_in_braces", "f'{a or b} {c == d}'", 2),
        ("condition_in_braces", "f'{x:{w if w else 1}}'", 1),
        ("condition_in_braces", "f'{f(a if b else c)}'", 1),
        ("condition_in_braces", "f'{a * (b < 1)}'", 1),
        ("condition_in_braces", "f'{name} {x:.1f}' if a else ''", 0),
        ("filter_of_none", "' '.join(filter(None, words))", 1),
        ("filter_of_none", "filter(str.strip, words)", 0),
        ("dense_comprehension", "[a for a in b for c in d]", 1),
        ("dense_comprehension", "{a: a for a in b if a if c}", 1),
        ("dense_comprehension", "{\na\nfor a in b\nif a\n}", 1),
        ("dense_comprehension", "{\na for a in b\nif a\n}", 0),
        ("dense_comprehension", "[[a for a in b] for b in c if d and e]", 0),
        ("walrus_within", "[b for a in c if (b := f(a))]", 1),
        ("walrus_within", "x = (a := 1) + 2\nif a:\n    f(b := 2)", 2),
        ("walrus_within", "if [b for a in c if (b := f(a))]:\n    pass", 1),
        ("walrus_within", "if (a := f()) is not None and a > 1:\n    pass", 0),
        ("walrus_within", "while a := f():\n    pass", 0),
        ("walrus_within", "if a:\n    pass\nelif b := f():\n    pass", 0),
        ("walrus_within", "(b := 1) if a else 2", 1),
    ],
)
def test_a_kind_is_counted(kind: str, code: str, number: int) -> None:
    assert OFFENCES[kind](ast.parse(code)) == number
