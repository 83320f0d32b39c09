"""JSON as recordings need it: decimals exact, any text in plain ASCII."""

import json
from decimal import Decimal

_DECODER = json.JSONDecoder(parse_float=Decimal)


def decode(raw: str | bytes) -> object:
    """Decode a document; fractions become Decimal.

    Raises:
        ValueError: It is not UTF-8, not JSON or nested too deeply; says which in a few words.
    """
    try:
        return _DECODER.decode(raw if isinstance(raw, str) else raw.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not valid JSON: {error.msg} at character {error.pos + 1}") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except ValueError:  # from int, with advice about the interpreter
        raise ValueError("holds a number with thousands of digits") from None


def encode(value: object) -> str:
    """Encode on one line; what UTF-8 cannot hold is escaped like everything beyond ASCII."""
    return json.dumps(value, allow_nan=False, default=_plain)


def _plain(value: object) -> str | float:
    if not isinstance(value, Decimal):
        raise TypeError(f"no JSON for {type(value).__name__}")
    return number if Decimal(str(number := float(value))) == value else str(value)
