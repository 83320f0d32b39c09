"""TOML and JSON documents, parsed without trust in them."""

import json
import tomllib
from collections.abc import Callable
from typing import Any, cast

from aegish_dist.core.text import clean_json
from aegish_dist.errors import InputError

MAX_INTEGER = 2**63
"""The specification of TOML asks for 64 bits; Python's `str` refuses longer integers."""


def parse_toml(text: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Parse a TOML document.

    Args:
        parse_float: Makes a number of the digits of a decimal fraction.

    Raises:
        InputError: It is not TOML, is nested too deeply, or holds an integer of more than 64 bits.
    """
    try:
        content = tomllib.loads(text, parse_float=parse_float)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is not valid TOML: {error}") from None
    except RecursionError:
        raise InputError("is nested too deeply") from None
    except ValueError:  # from int, with advice about the interpreter
        raise InputError("holds a number with thousands of digits") from None
    _require_64_bits(content)
    return content


def parse_json(text: str | bytes, parse_float: Callable[[str], Any] | None = None) -> object:
    """Parse a JSON document; `NaN` and `Infinity` are numbers, as Python writes them.

    Texts are cleaned: see `core.text`.

    Args:
        text: The document; bytes are UTF-8, with or without a byte order mark.
        parse_float: Makes a number of the digits of a decimal fraction; None makes floats.

    Raises:
        InputError: It is not JSON, is nested too deeply, or holds a number of thousands of digits.
    """
    try:
        text = text if isinstance(text, str) else text.decode("utf-8-sig")
        return cast(object, clean_json(text, json.loads(text, parse_float=parse_float)))
    except UnicodeDecodeError:
        raise InputError("is not UTF-8") from None
    except json.JSONDecodeError as error:
        problem = f"is not valid JSON: {error.msg} at character {error.colno}"
        raise InputError(problem, line=error.lineno) from None
    except RecursionError:
        raise InputError("is nested too deeply") from None
    except ValueError:  # from int, with advice about the interpreter
        raise InputError("holds a number with thousands of digits") from None


def _require_64_bits(content: dict[str, Any]) -> None:
    left: list[object] = [content]
    while left:
        match left.pop():
            case dict() as table:
                left.extend(table.values())
            case list() as array:
                left.extend(array)
            case int() as number if not -MAX_INTEGER <= number < MAX_INTEGER:
                raise InputError("holds an integer of more than 64 bits")
