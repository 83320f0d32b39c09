"""The words for what is wrong with configuration."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from aegish_dist.core.checking import WrongValueError, problem


class Colour(StrEnum):
    """A closed set."""

    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """A table in a table."""

    colour: Colour = Colour.RED
    even: int = 0

    def __post_init__(self) -> None:
        """Refuse what the type does not tell."""
        if self.even % 2:
            raise WrongValueError("even", "must be even")


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    """The top."""

    size: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    name: Annotated[str, msgspec.Meta(min_length=1)] = "x"
    inner: Inner | None = None
    inners: list[Inner] = []
    mode: Literal["fast", "safe"] | None = None


@pytest.mark.parametrize(
    ("value", "path", "text"),
    [
        ({}, "size", "is missing"),
        ({"size": 0}, "size", "must be at least 1"),
        ({"size": 10_001}, "size", "must be at most 10,000"),
        ({"size": "9"}, "size", "must be a whole number"),
        ({"size": 1, "share": 0}, "share", "must be greater than 0"),
        ({"size": 1, "share": 1}, "share", "must be less than 1"),
        ({"size": 1, "share": True}, "share", "must be a number"),
        ({"size": 1, "name": ""}, "name", "must not be empty"),
        ({"size": 1, "inner": 1}, "inner", "must be a table"),
        ({"size": 1, "inner": {"even": 1}}, "inner.even", "must be even"),
        ({"size": 1, "inner": {"colour": "sk"}}, "inner.colour", "must be one of 'red', 'blue'"),
        ({"size": 1, "inner": {"odd": 1}}, "inner.odd", "unknown key; known are colour, even"),
        (
            {"size": 1, "inners": [{}, {"odd": 1}]},
            "inners[1].odd",
            "unknown key; known are colour, even",
        ),
        ({"size": 1, "mode": "sk"}, "mode", "must be one of 'fast', 'safe'"),
    ],
)
def test_a_problem_has_a_place_and_plain_words(value: Any, path: str, text: str) -> None:
    """Keys are joined by dots, and values are not repeated."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(value, Outer)
    assert problem(caught.value, Outer) == (path, text)


@pytest.mark.parametrize("key", ["x` - at `$.y", "a\nb", "`", "$"])
def test_a_hostile_key_is_described_too(key: str) -> None:
    """No name of a key makes the description fail."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({"size": 1, key: 1}, Outer)
    assert all(problem(caught.value, Outer))
