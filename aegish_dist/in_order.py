"""Work side by side whose results come in the order of the arguments."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Argument = TypeVar("Argument")
Result = TypeVar("Result")


def in_order(
    executor: Executor,
    work: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    *,
    ahead: int,
) -> Iterator[Result]:
    """Yield the result of each argument, with no more than some under way or waiting to be used.

    `Executor.map` begins all at once, and keeps whatever is not used as fast as it is made.
    """
    waiting: deque[Future[Result]] = deque()
    for argument in arguments:
        waiting.append(executor.submit(work, argument))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
