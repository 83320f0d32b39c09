"""TOML out: the few forms that the files of opinions need."""

from collections.abc import Iterable

from aegish_dist.core.printable import printable

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def toml_text(text: str) -> str:
    r"""Return a text as a basic string of one line.

    Everything that would be invisible is escaped, so that neither a terminal nor a reader is
    deceived by a file: commands are hostile.
    """
    return f'"{"".join(map(_escaped, text))}"'


def toml_texts(texts: Iterable[str]) -> str:
    """Return texts as an array of one line."""
    return f"[{', '.join(map(toml_text, texts))}]"


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if printable(character) == character:
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
