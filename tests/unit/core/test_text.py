"""Foreign text made safe to look at."""

import pytest

from aegish_dist.core.text import did_you_mean, printable
from tests.recorded import lines_of


@pytest.mark.parametrize(("text", "shown"), lines_of("shown_texts.jsonl"))
def test_only_invisible_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_nothing_unprintable_is_left() -> None:
    shown = printable("".join(map(chr, range(0x3000))) + "\udfff")
    assert shown.isprintable()
    assert shown.encode()


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("raport", "did you mean 'report'?"),
        ("REPORT", "did you mean 'report'?"),
        ("import", "there are four"),
        ("pgn", "did you mean 'png'?"),
        ("score", "did you mean 'aegish_score' or 'aegish_score_worst'?"),
        ("re", "there are four"),
        ("", "there are four"),
        ("x" * 100_000, "there are four"),
    ],
)
def test_the_names_that_are_like_an_unknown_one(name: str, hint: str) -> None:
    """Nearly the same letters, the same in another order, or a part of the name."""
    known = ("report", "png", "aegish_score", "aegish_score_worst")
    assert did_you_mean(name, known, "there are four") == hint
