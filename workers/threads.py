"""A thread for blocking calls that may hang for ever without keeping the process alive."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_Call = tuple["Future[Any]", Callable[[], Any]]


class DaemonThread(Executor):
    """Runs calls one after another in a daemon thread.

    The interpreter waits at its end for every thread of a `ThreadPoolExecutor`: a call over a
    connection that swallows everything would keep a stopping worker alive for as long.
    """

    def __init__(self, name: str) -> None:
        """Start the thread.

        Args:
            name: Of the thread.
        """
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(
        self,
        fn: Callable[Parameters, Result],
        /,
        *args: Parameters.args,
        **kwargs: Parameters.kwargs,
    ) -> "Future[Result]":
        """Queue a call."""
        future: Future[Result] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the thread after the calls that it has; never waits for them."""
        self._calls.put(None)

    def _run(self) -> None:
        while (queued := self._calls.get()) is not None:
            future, call = queued
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
