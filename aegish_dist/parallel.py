"""Parallel work in threads or processes, with results in the order of the arguments.

The standard library's part for processes takes 6 ms to import: what needs it does so itself.
"""

import gc
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from threading import Thread
from typing import Any, TypeVar

from aegish_dist.errors import ConfigError

Argument = TypeVar("Argument")
Result = TypeVar("Result")

AHEAD = 2
"""Results per process that may wait to be used."""

_work: list[Callable[[Any], Any]] = []
"""The function of a process of `map_in_processes`; set when the process starts."""


def in_order(
    executor: Executor,
    work: Callable[[Argument], Result],
    arguments: Iterable[Argument],
    *,
    ahead: int,
) -> Iterator[Result]:
    """Yield the result of each argument, with a bound on the results that wait to be used.

    `Executor.map` begins all calls at once, and keeps every result that is not used as fast as it
    is made.

    Args:
        arguments: Taken only as far as the bound allows.
        ahead: Calls that are under way or whose result waits, beyond the one yielded; at least 0.
    """
    waiting: deque[Future[Result]] = deque()
    for argument in arguments:
        waiting.append(executor.submit(work, argument))
        if len(waiting) > ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def map_in_processes(
    work: Callable[[Argument], Result], arguments: Iterable[Argument]
) -> Iterator[Result]:
    """Call a function in one process per core but one, which is left to the user of the results.

    Args:
        work: Copied into each process, where it may remember things between calls.
    """
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor  # noqa: PLC0415
    from multiprocessing import get_context  # noqa: PLC0415

    processes = max(1, (os.cpu_count() or 2) - 1)
    # Not forked: a copy of an open database connection would end the session of the original.
    executor = ProcessPoolExecutor(
        processes, get_context("spawn"), initializer=_start, initargs=(work,)
    )
    try:
        yield from in_order(executor, _do, arguments, ahead=AHEAD * processes)
    except BrokenProcessPool as error:
        raise ConfigError(
            "a process that was to share the work has ended: is there too little memory?"
        ) from error
    finally:
        executor.shutdown(cancel_futures=True)


def _start(work: Callable[[Any], Any]) -> None:
    # An interrupt reaches every process of a terminal: the first one ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    gc.disable()  # a tenth of the time, spent on looking for cycles in rows, which have none
    _work[:] = [work]


def _end_with_parent() -> None:
    """End this process when the first one was killed: its next message would never come."""
    from multiprocessing import parent_process  # noqa: PLC0415

    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do(argument: Any) -> Any:
    return _work[0](argument)
