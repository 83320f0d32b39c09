"""Reading JSON of unknown shape: what is missing or odd reads as None, never as an exception.

Providers add, drop and mistype fields without notice, and completions are hostile input.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import cast

from aegish_dist.core.outcome import ErrorClass
from aegish_dist.core.text import clean_json
from aegish_dist.errors import ProviderError

JsonObject = Mapping[str, object]
Headers = Mapping[str, str]  # of a response, by names in any letter case

LABEL_LENGTH = 200
# Values of an answer at most: so many take 0.07 s of the event loop, in which all calls live.
MOST_ELEMENTS = 20_000
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # also one that nothing ends
MAX_COUNT = 2**53  # larger token counts are nonsense and would not fit the store when summed


def malformed(problem: str) -> ProviderError:
    """Return the error for a successful response that is no answer."""
    return ProviderError(problem, error_class=ErrorClass.MALFORMED, status=200)


def parse(body: bytes, mask: Callable[[object], object] = lambda value: value) -> object:
    """Return the JSON value of a response body, masked and then cleaned."""
    try:
        text = body.decode(json.detect_encoding(body), "surrogatepass")
        # Strings may hold as many commas as they like.
        if _marks(text) > MOST_ELEMENTS and _marks(_STRING.sub("", text)) > MOST_ELEMENTS:
            raise malformed(f"the provider's answer has more than {MOST_ELEMENTS} values")
        value = json.loads(text)
    except (ValueError, RecursionError):
        # The exception quotes the body, which may hold a completion.
        raise malformed("the provider's answer is not JSON") from None

    try:
        # Masked first: a key that is echoed as UTF-16 is known by the zeros that cleaning replaces.
        return cast(object, clean_json(body, mask(value)))
    except RecursionError:  # the parser goes deeper than Python's own calls
        raise malformed("the provider's answer is nested too deeply") from None


def _marks(text: str) -> int:
    return sum(map(text.count, "[{,"))


def at(value: object, *keys: str) -> object:
    """Return what keys lead to through nested JSON objects; None where there is nothing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def mapping(value: object, *keys: str) -> JsonObject:
    """Return the JSON object that keys lead to; an empty one for anything else."""
    found = at(value, *keys)
    return found if isinstance(found, dict) else {}


def objects(value: object, *keys: str) -> list[JsonObject]:
    """Return the objects of the array that keys lead to; all else drops out."""
    found = at(value, *keys)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text(value: object, *keys: str) -> str | None:
    found = at(value, *keys)
    return found if isinstance(found, str) else None


def label(value: object, *keys: str) -> str | None:
    """Return a non-empty text, cut to a length fit for an id or a name."""
    found = text(value, *keys)
    return found[:LABEL_LENGTH] if found else None


def count(value: object, *keys: str) -> int | None:
    """Return a token count: a whole number from 0, which some vendors write as `20.0`."""
    found = at(value, *keys)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < MAX_COUNT:
        return found
    return None


def joined_text(content: object) -> str:
    """Join the texts of the parts of type `text`; reasoning and refusals are other types."""
    texts = [text(part, "text") for part in objects(content) if part.get("type") == "text"]
    return "".join(part for part in texts if part)


def arguments(calls: Iterable[object]) -> str | None:
    """Return the arguments of tool calls, one a line: JSON, or text that is meant to be JSON."""
    texts = [call if isinstance(call, str) else json.dumps(call) for call in calls if call]
    return "\n".join(texts) or None


def total(counts: Iterable[int | None]) -> int | None:
    """Add up the counts that are known; None when none is."""
    known = [value for value in counts if value is not None]
    return sum(known) if known else None
