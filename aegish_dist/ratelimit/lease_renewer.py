"""The task behind a gate: it tells the limiter what came of the calls and asks for more.

It asks for all who wait at once, and rests as long as asking is in vain; without a limit in sight
that is a second. It ends when nobody waits and everything is told, and is started anew for the
next one to come.
"""

import asyncio
import math
from contextlib import suppress

from aegish_dist.core.limits import Limits
from aegish_dist.errors import (
    ItemShedError,
    LimiterFailedError,
    LimiterUnreachableError,
    OverBudgetError,
)
from aegish_dist.logs import get_logger
from aegish_dist.ratelimit.fair_queue import FairQueue, RunQueue
from aegish_dist.ratelimit.local_lease import PROBERS, LocalLease
from aegish_dist.ratelimit.ports import Ports
from aegish_dist.ratelimit.protocol import Lease, LeaseRequest, RunLease, RunRequest
from aegish_dist.ratelimit.usage_report import News

log = get_logger(__name__)

SHORTEST_GAP_S = 0.01
"""Between two asks: what comes in meanwhile shares a round trip."""
RETRY_S, LONGEST_RETRY_S = 0.2, 5.0
"""Between asks while the limiter cannot be reached."""
FINISH_S = 5.0
"""How long the last news may take to be told."""
JITTER = 0.1
"""Waits are longer by up to this part, so that a fleet does not come back in step."""


class LeaseRenewer:
    """Asks the limiter about one model, on behalf of its gate."""

    def __init__(
        self, model: str, ports: Ports, room: FairQueue, ration: LocalLease, news: News
    ) -> None:
        """Compose a pump; it asks nothing before it is stirred.

        Args:
            model: Canonical id.
            ports: The ways to the limiter and the store.
            room: Who waits at the gate.
            ration: Given every grant.
            news: What the limiter does not know yet.
        """
        self.limits = self.shared = Limits()
        """Of the model, and of all models of its provider together."""
        self.tokens = 1
        """Estimated of the next call."""
        self._model = model
        self._ports = ports
        self._room = room
        self._ration = ration
        self._news = news
        self._asked_at = -math.inf
        self._urgent = False
        self._bell = asyncio.Event()
        self._closed = asyncio.Event()
        self._heard: list[asyncio.Future[None]] = []
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether it asks and listens; otherwise what was heard last may have passed."""
        return self._task is not None

    @property
    def closed(self) -> bool:
        """Whether the gate is closing."""
        return self._closed.is_set()

    def stir(self, *, urgent: bool = False) -> None:
        """LeaseRequest where that could help; urgent news are told at once."""
        self._urgent |= urgent
        if self._task is None:
            self._task = asyncio.create_task(self._run())
            self._task.add_done_callback(self._ended)
        elif self._urgent or self._worth_asking:
            self._bell.set()

    def hearing(self) -> "asyncio.Future[None]":
        """Return what is done once the news up to now are told, or cannot be."""
        heard: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._heard.append(heard)
        return heard

    def close(self) -> None:
        """LeaseRequest for nobody any more; what is untold is told."""
        self._closed.set()
        self._urgent = True
        self._bell.set()

    async def finish(self) -> None:
        """Wait until the last call and its cost are told, or nobody listens."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=FINISH_S)

    async def open_for(self, seconds: float) -> None:
        """Wait so long, or until the gate closes."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)

    async def still_over(self, line: RunQueue) -> bool:
        """Return whether a run is over its cap, even if somebody has raised that meanwhile."""
        budget = await self._ports.budget(line.run_id)
        if budget is not None and budget != line.budget:
            line.budget, line.over = budget, False
        return line.over

    @property
    def _worth_asking(self) -> bool:
        return self._room.waiting > 0 and self._ration.worth_asking

    async def _run(self) -> None:
        retry_s = RETRY_S
        while True:
            heard, self._heard = self._heard, []
            try:
                wait_s = await self._exchange()
                retry_s = RETRY_S
            except LimiterUnreachableError as error:
                if self.closed and not (self._ration.held or self._heard):
                    self._news.take()  # nobody will hear it
                    return
                log.warning("limiter_unreachable", problem=str(error), retry_in_s=retry_s)
                await (asyncio.sleep(retry_s) if self.closed else self.open_for(retry_s))
                wait_s, retry_s = 0.0, min(2 * retry_s, LONGEST_RETRY_S)
            finally:
                for future in heard:
                    if not future.done():
                        future.set_result(None)
            if wait_s is None:
                return
            await self._rest(wait_s * (1 + JITTER * self._ports.generator.random()))

    async def _exchange(self) -> float | None:
        """Ask once; return the seconds to the next time, None when nothing is left to ask for."""
        self._urgent = False
        self._ration.ask()
        self._room.forget_idle()  # only here: while an answer is awaited, lines lack what is told
        asked = [(line, run) for line in self._room if (run := line.ask()) is not None]
        busy = self._ration.held or self._room.waiting
        grant = await self._ask(asked)
        self._take(grant)
        settled = [
            await self._settle(line, run, granted)
            for (line, run), granted in zip(asked, grant.runs, strict=True)
        ]
        self._room.admit(self._ration.begin)
        self._ration.settle(self._room.waiting)
        if busy or self._ration.held or self._room.waiting or self._news or self._heard:
            return grant.wait_s if all(settled) else 0.0
        self._ration.lapse()
        return None

    async def _ask(self, asked: list[tuple[RunQueue, RunRequest]]) -> Lease:
        told, now = self._news.take(), now_s()
        ask = LeaseRequest(
            model=self._model,
            held=self._ration.held,
            waiting=self._room.waiting,
            tokens=self.tokens,
            limits=self.limits,
            shared=self.shared,
            told=told,
            runs=[run for _, run in asked],
            probing=self._ration.probing,
        )
        try:
            grant = await self._ports.ask(ask)
        except LimiterUnreachableError:
            self._news.put_back(told)
            for line, run in asked:
                line.put_back(run)
            raise
        self._asked_at = now
        return grant

    def _take(self, grant: Lease) -> None:
        if grant.parked != self._ration.parked:
            log.warning("model_parked" if grant.parked else "model_back", model=self._model)
        self._ration.take(grant, self._asked_at)
        self._news.enter_epoch(grant.epoch)
        if grant.parked:
            self._room.send_back(ItemShedError, keep=PROBERS, even_called=True)
        elif grant.rate is not None:
            # A broker that pushes may have sent more than was asked for.
            self._room.send_back(
                ItemShedError, keep=2 * self._ration.prefetch_target, even_called=False
            )

    async def _settle(self, line: RunQueue, asked: RunRequest, granted: RunLease) -> bool:
        """Take note of what a run may do; return whether asking again at once is in vain."""
        if granted.unknown:
            line.put_back(asked)
            line.stored = await self._ports.spent(line.run_id)
            return False
        line.take(granted)
        if not line.over:
            return True
        if not await self.still_over(line):
            return False
        log.warning("run_over_budget", run=line.run_id, model=self._model)
        self._room.turn_away(OverBudgetError, only=line)
        return True

    async def _rest(self, wait_s: float) -> None:
        ends = self._asked_at + wait_s
        if not (self._urgent or self._worth_asking):
            self._bell.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, ends - now_s())):
                    await self._bell.wait()
        gap_s = min(ends, self._asked_at + SHORTEST_GAP_S) - now_s()
        if gap_s > 0 and not self._urgent:
            await asyncio.sleep(gap_s)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        if task.cancelled():
            return  # with the loop
        error = task.exception()
        if error is not None:
            # A bug: those who wait go back uncalled, and the next one to come tries anew.
            log.error("gate_failed", model=self._model, exc_info=error)
            self._room.turn_away(LimiterFailedError)
        if self._room.waiting or self._news:
            self.stir()


def now_s() -> float:
    """Return the time of the running loop, in seconds."""
    return asyncio.get_running_loop().time()
