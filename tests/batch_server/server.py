"""The product's simulated provider, which also answers requests about batches."""

from collections import Counter

from aiohttp import web
from msgspec import field

from aegish_dist.simulator.server import Simulator, Stats
from tests.batch_server.batches import BatchService
from tests.batch_server.bill import BatchBill
from tests.batch_server.plan import BatchScenario


class BatchStats(Stats):
    batch_faults: Counter[str] = field(default_factory=Counter)
    """Faults of requests about batches, by `ENDPOINT.FAULT`."""


class BatchSimulator(Simulator):
    def __init__(self, scenario: BatchScenario) -> None:
        super().__init__(scenario)
        bill = BatchBill(scenario.price, scenario.tariffs, scenario.batches.share)
        self.batches = BatchService(scenario, self.model, bill)
        self.stats = BatchStats(bill, batch_faults=self.batches.faults)

    async def serve_other(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self.batches.handle(request, self.new_id())
        return await super().serve_other(request) if response is None else response
