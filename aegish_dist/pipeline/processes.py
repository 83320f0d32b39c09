"""Work in several processes, results in the order of the arguments."""

import gc
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, TypeVar

from aegish_dist.errors import ConfigError
from aegish_dist.in_order import in_order

Argument = TypeVar("Argument")
Result = TypeVar("Result")

AHEAD = 2
"""Results per process that may wait to be used."""

_work: list[Callable[[Any], Any]] = []
"""What this process does; set when it starts."""


def _start(work: Callable[[Any], Any]) -> None:
    # An interrupt reaches every process of a terminal: the first one tells the others to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    gc.disable()  # a tenth of the time, spent on looking for cycles in rows, which have none
    _work[:] = [work]


def _end_with_parent() -> None:
    """End when the first process was killed: waiting for its next word would never end."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _do(argument: Any) -> Any:
    return _work[0](argument)


def map_in_processes(
    work: Callable[[Argument], Result], arguments: Iterable[Argument]
) -> Iterator[Result]:
    """Call in one process per core but one, which is left to whoever uses the results.

    Args:
        work: Copied into each process, where it may remember things between calls.
        arguments: Few are taken ahead of the results.

    Raises:
        ConfigError: A process was ended from outside.
    """
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
