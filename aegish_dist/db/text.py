"""Any Unicode text in PostgreSQL, losslessly.

PostgreSQL's text refuses U+0000, and UTF-8 refuses lone surrogates; models produce both. Those
code points, and the escape character itself, are stored as U+E000 followed by four hexadecimal
digits. Everything else is stored as it is, so SQL still reads it.
"""

import re

from sqlalchemy import Dialect, Text, TypeDecorator

ESCAPE = "\ue000"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff\ue000]")
_ESCAPED = re.compile(ESCAPE + "([0-9a-f]{4})")


def encode_text(text: str) -> str:
    """Return text that PostgreSQL can hold; `decode_text` gives the original back."""
    return _UNSTORABLE.sub(lambda match: f"{ESCAPE}{ord(match[0]):04x}", text)


def decode_text(stored: str) -> str:
    """Return the original of what `encode_text` made."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), stored)


def escaped_pattern(text: str) -> str:
    r"""Return text as a pattern of LIKE that matches nothing but itself."""
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")


class AnyText(TypeDecorator[str]):
    """A text column that takes every Python string."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape on the way in."""
        return None if value is None else encode_text(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Restore on the way out."""
        return None if value is None else decode_text(value)
