"""Values that a test knows to be there although their type allows None."""

from typing import TypeVar

T = TypeVar("T")


def defined(value: T | None) -> T:
    assert value is not None
    return value
