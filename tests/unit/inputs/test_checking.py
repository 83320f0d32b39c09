"""What is wrong with configuration: where, and in the words of msgspec."""

from enum import StrEnum
from typing import Annotated, Any, Literal

import msgspec
import pytest

from aegish_dist.errors import DatasetError, InputError
from aegish_dist.inputs.checking import Location, checked
from tests.recorded import lines_of


class Colour(StrEnum):
    """A closed set."""

    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct, forbid_unknown_fields=True):
    """A table in a table."""

    colour: Colour = Colour.RED
    even: int = 0
    sizes: dict[str, list[int]] = {}

    def __post_init__(self) -> None:
        """Refuse what the type does not tell."""
        if self.even % 2:
            raise InputError("must be even", field="even")


class Outer(msgspec.Struct, forbid_unknown_fields=True):
    """The top."""

    size: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    share: Annotated[float, msgspec.Meta(gt=0, lt=1)] | None = None
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=20)] = "x"
    inner: Inner | None = None
    inners: list[Inner] = []
    mode: Literal["fast", "safe"] | None = None
    least: Annotated[float, msgspec.Meta(ge=0.5)] = 1
    named: dict[str, Inner] = {}


@pytest.mark.parametrize(("value", "path", "text"), lines_of("refused_records.jsonl"))
def test_a_problem_has_a_place(value: Any, path: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        checked(value, Outer)
    assert (caught.value.field, caught.value.what) == (path, text)
    assert str(caught.value) == f"key '{path}': {text}"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"size": "9"}, "field 'a.size': Expected `int`, got `str`"),
        ({"size": None}, "field 'a.size': Expected `int`, got `null`"),
        ({"size": 1, "inner": []}, "field 'a.inner': Expected `object | null`, got `array`"),
        ({"size": 1, "inners": [1]}, "field 'a.inners[0]': Expected `object`, got `int`"),
        ({"size": 1, "name": "x" * 21}, "field 'a.name': Expected `str` of length <= 20"),
        ([], "field 'a': Expected `object`, got `array`"),
    ],
)
def test_a_problem_of_a_record_names_file_line_and_type(value: Any, message: str) -> None:
    with pytest.raises(DatasetError) as caught:
        Location("f.jsonl", 3).checked(value, Outer, "a")
    assert str(caught.value) == f"f.jsonl, line 3, {message}"


@pytest.mark.parametrize("key", ["x` - at `$.y", "a\nb", "`", "$"])
def test_a_hostile_key_is_described_too(key: str) -> None:
    with pytest.raises(InputError) as caught:
        checked({"size": 1, key: 1}, Outer)
    assert caught.value.field
    assert caught.value.what


def test_a_key_without_a_name_is_described() -> None:
    with pytest.raises(InputError) as caught:
        checked({"size": 1, "": 1}, Outer)
    assert str(caught.value) == "Object contains unknown field ``"
