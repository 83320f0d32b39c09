"""TOML files, read without trust in them."""

import tomllib
from collections.abc import Callable
from typing import Any

MAX_INTEGER = 2**63
"""The specification asks for 64 bits; Python's integers have no end, and its `str` refuses them."""


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a document.

    Args:
        text: The document.
        parse_float: Makes a number of the digits of a decimal fraction.

    Raises:
        ValueError: It is not TOML, is nested too deeply, or holds an integer of more than 64 bits;
            says which in a few words.
    """
    try:
        content = tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError:
        raise
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError:  # from int, with advice about the interpreter
        raise ValueError("holds a number with thousands of digits") from None
    _require_64_bits(content)
    return content


def _require_64_bits(content: dict[str, Any]) -> None:
    left: list[object] = [content]
    while left:
        match left.pop():
            case dict() as table:
                left.extend(table.values())
            case list() as array:
                left.extend(array)
            case int() as number if not -MAX_INTEGER <= number < MAX_INTEGER:
                raise ValueError("holds an integer of more than 64 bits")
