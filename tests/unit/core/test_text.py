"""Foreign text made safe to look at."""

import pytest

from aegish_dist.core.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("openai/gpt-5.1", "openai/gpt-5.1"),
        ("Überprüfung 検査", "Überprüfung 検査"),
        ("[red]x[/red]", "[red]x[/red]"),
        ("", ""),
        ("a\x1b[31mb", r"a\x1b[31mb"),
        ("a\nb\tc\x00", r"a\nb\tc\x00"),
        ("\x7f\x9b", r"\x7f\x9b"),
        ("\u202eevil\u2066", r"\u202eevil\u2066"),
        ("\u200b\ufeff", r"\u200b\ufeff"),
        ("\u2028\u2029\x85", r"\u2028\u2029\x85"),
        ("\ud800", r"\ud800"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_only_invisible_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_nothing_unprintable_is_left() -> None:
    shown = printable("".join(map(chr, range(0x3000))) + "\udfff")
    assert shown.isprintable()
    assert shown.encode()
