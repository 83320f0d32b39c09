"""Text that every store and file can hold; foreign text is cleaned once, where it enters."""

import re
from typing import Any

REPLACEMENT = "\ufffd"
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
# In JSON these stand as escapes; Python's `json` also takes surrogates as three bytes.
_SIGN = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")
_SIGN_IN_BYTES = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])|\xed[\xa0-\xbf]")


def clean_text(text: str) -> str:
    """Put U+FFFD in place of U+0000, which PostgreSQL refuses, and of lone surrogates."""
    return text if text.isascii() and "\0" not in text else _UNSTORABLE.sub(REPLACEMENT, text)


def clean_json(encoded: str | bytes, value: Any) -> Any:
    """Clean all texts of a JSON value, keys included.

    Args:
        encoded: The document that was decoded; one without a sign of such text is not walked.
    """
    sign = _SIGN.search(encoded) if isinstance(encoded, str) else _SIGN_IN_BYTES.search(encoded)
    return _clean(value) if sign else value


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, list):
        return [_clean(each) for each in value]
    if isinstance(value, dict):
        return {clean_text(key): _clean(each) for key, each in value.items()}
    return value
