"""The callers that a worker keeps."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from aegish_dist.errors import ConfigError
from aegish_dist.pipeline.caller import Caller
from workers.callers import KEPT_CALLERS, Callers


class Maker:
    """Makes something else every time, and remembers for whom."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.problem: Exception | None = None

    async def __call__(self, run_id: str, model: str) -> Caller:
        self.asked.append((run_id, model))
        await asyncio.sleep(0)
        if self.problem is not None:
            raise self.problem
        return cast("Caller", object())


def play(test: Callable[[Maker, Callers], Awaitable[Any]]) -> None:
    """Play a test with no callers made yet."""

    async def run() -> None:
        maker = Maker()
        await test(maker, Callers(maker))

    asyncio.run(run())


def test_a_caller_is_made_once() -> None:
    """All who want one at the same time, and all who come later, get the same one."""

    async def test(maker: Maker, callers: Callers) -> None:
        found = await asyncio.gather(*(callers("run", "lab/a") for _ in range(5)))
        found.append(await callers("run", "lab/a"))
        assert len(set(map(id, found))) == 1
        assert await callers("run", "lab/b") is not found[0]
        assert maker.asked == [("run", "lab/a"), ("run", "lab/b")]

    play(test)


def test_callers_of_ended_runs_are_forgotten() -> None:
    """The one that was not used for the longest time goes; a run that goes on keeps its own."""

    async def test(maker: Maker, callers: Callers) -> None:
        kept = await callers("kept", "lab/a")
        for number in range(2 * KEPT_CALLERS):
            await callers(f"run{number}", "lab/a")
            assert await callers("kept", "lab/a") is kept
        before = len(maker.asked)
        last = 2 * KEPT_CALLERS - 1
        for number in (last, last - KEPT_CALLERS + 2, last - KEPT_CALLERS + 1):
            await callers(f"run{number}", "lab/a")
        assert maker.asked[before:] == [(f"run{last - KEPT_CALLERS + 1}", "lab/a")]

    play(test)


def test_what_cannot_be_made_is_tried_again() -> None:
    """A caller that failed for want of a key is made for the next item."""

    async def test(maker: Maker, callers: Callers) -> None:
        maker.problem = ConfigError("no key")
        with pytest.raises(ConfigError):
            await callers("run", "lab/a")
        maker.problem = None
        await callers("run", "lab/a")
        assert len(maker.asked) == 2

    play(test)
