"""Everything a drill needs: servers, proxies before them, a provider, and worker processes.

Workers reach PostgreSQL and the broker through proxies; the drill itself goes past them.
"""

import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Self

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import make_url, text
from sqlalchemy.orm import Session

from aegish_dist.broker.client import drop_waiting
from aegish_dist.broker.messages import queue_name
from aegish_dist.core.model import CallParameters, Price, Rate
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.models.catalog import Catalog
from aegish_dist.pipeline.enqueue import enqueue_missing
from aegish_dist.pipeline.plan import RunPlan
from aegish_dist.pipeline.submit import submit
from aegish_dist.prompts.loading import load_prompt
from aegish_dist.ratelimit.shared_limiter import probe_now
from tests.chaos.provider import Provider
from tests.chaos.servers import CuttingProxy, Postgres
from tests.cluster import Cluster
from tests.half_open import HalfOpenProxy
from tests.services import HOST, PgBouncer, RabbitServer, RedisServer

PROVIDERS = ("drilled", "drilled-anthropic")
CATALOG = """
[providers.drilled]
wire = "openai"
base_url = "{url}/v1"
key_variable = ""
batch_share = 0.5

[providers.drilled-anthropic]
wire = "anthropic"
base_url = "{url}"
key_variable = ""
batch_share = 0.5
"""
PRICE = Price(input=Rate(Decimal(2)), output=Rate(Decimal(10)))
GRACE_S = 10.0

Identity = tuple[int, int, int, int]


class Layout(Struct, frozen=True):
    """Parts of a fleet; drills of the same layout share one."""

    broker: str = "redis"
    queue_type: str = "classic"
    workers: int = 2
    concurrency: int = 10  # calls that each of them has in flight at most
    lease_s: float = 40.0  # seconds after which a killed worker's messages are requeued in Redis
    persistent: bool = False  # whether a Redis keeps its data, as that of docker-compose.yml does
    pooled: bool = False  # whether PgBouncer, in transaction mode, stands before PostgreSQL


class Fleet(ExitStack):
    def __init__(self, home: Path, layout: Layout) -> None:
        super().__init__()
        self.home, self.layout = home, layout
        self.workers: list[subprocess.Popen[bytes]] = []
        self._models: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def _start(self) -> None:
        enter, layout = self.enter_context, self.layout
        self.provider = enter(Provider())
        self.postgres = enter(Postgres())
        self.broker: RabbitServer | RedisServer
        if layout.broker == "rabbitmq":
            self.broker = enter(RabbitServer(self.home))
        else:
            self.broker = enter(RedisServer(self.home, persistent=layout.persistent))
        self.database_proxy = enter(CuttingProxy.to_postgres(self.postgres.url))
        self.pooler = PgBouncer(self.home, self.database_proxy.port, connections=8)
        database_url = self.database_proxy.postgres_url(self.postgres.url)
        if layout.pooled:
            database_url = enter(self.pooler).url(self.postgres.url)
        self.broker_proxy = enter(HalfOpenProxy(self.broker.port))
        catalog = self.home / "catalog.toml"
        catalog.write_text(CATALOG.format(url=f"http://{HOST}:{self.provider.port}"))
        self.catalog = Catalog.load(catalog)
        # Of another name than the workers' connections, which some faults end.
        own = make_url(self.postgres.url).update_query_dict({"application_name": "drill"})
        direct = {
            "database_url": own.render_as_string(hide_password=False),
            "broker_url": self.broker.url,
        }
        self.cluster = enter(Cluster(self.home, **direct, queue_type=layout.queue_type))
        self.cluster.set(
            catalog=catalog,
            home=self.home / "kept",
            concurrency=layout.concurrency,
            shutdown_grace_s=GRACE_S,
            message_lease_s=layout.lease_s,
            batch_poll_s=0.3,
        )
        self.direct = dict(self.cluster.env)  # variables of a command that goes past the proxies
        proxy = f":{self.broker_proxy.port}/"
        self.cluster.set(
            database_url=database_url,
            broker_url=self.broker.url.replace(f":{self.broker.port}/", proxy),
        )

    def start_worker(self) -> None:
        self.workers.append(self.cluster.start_worker())

    def ensure_workers(self) -> None:
        """Start what is missing of the layout's workers, and wait until all have reported."""
        self.require_workers()
        while len(self.workers) < self.layout.workers:
            self.start_worker()
        self.cluster.wait_for_workers(len(self.workers))

    def require_workers(self) -> None:
        """Check that no worker ended by itself."""
        ended = [worker.returncode for worker in self.workers if worker.poll() is not None]
        assert not ended, f"workers ended by themselves: {ended}"

    def submit(
        self, name: str, commands: list[str], time_limit_s: float, cap_usd: Decimal | None
    ) -> str:
        """Submit a run over commands to a model of each provider and return its id.

        Args:
            name: Of the models; what the limiter learnt of others does not touch them.
            cap_usd: Cap on the cost of the run, which is asked in batches then; None: asked live.
        """
        self._models = [f"{provider}/{name}" for provider in PROVIDERS]
        samples = tuple(Sample(command, TrueLabel.HARMLESS) for command in commands)
        submission = RunPlan(
            models=tuple(replace(m, price=PRICE) for m in self.catalog.resolve(self._models, {})),
            datasets=(Dataset("drill", samples),),
            prompt=load_prompt("guard"),
            parameters=CallParameters(time_limit_s=time_limit_s, max_cost_usd=cap_usd),
            epochs=1,
            batch_after_s=None if cap_usd is None else 0.0,
        )
        return submit(self.cluster.engine, self.cluster.app, submission).run_id

    def resume(self, run_id: str) -> None:
        """Enqueue what a run lacks in place of what still waits of it, as `resume` does."""
        drop_waiting(self.cluster.app, [queue_name(model, run_id) for model in self._models])
        enqueue_missing(self.cluster.engine, self.cluster.app, run_id)
        if self.layout.broker == "redis":
            probe_now(self.broker.url, self._models)

    def waiting(self, run_id: str) -> int:
        """Return how many messages of a run wait in its queues."""
        return self.cluster.waiting(run_id, *self._models)

    def stored(self, run_id: str) -> list[Identity]:
        query = text(
            "SELECT run_model_id, sample_key, epoch, generation FROM verdicts"
            " WHERE run_model_id IN (SELECT id FROM run_models WHERE run_id = :run)"
        )
        with Session(self.cluster.engine) as session:
            return [tuple(row) for row in session.execute(query, {"run": run_id})]


class Host(ExitStack):
    """Keeps one fleet running for those that need its layout; ended, the next one is new."""

    def __init__(self, new_home: Callable[[], Path]) -> None:
        super().__init__()
        self._new_home = new_home
        self._fleet: Fleet | None = None

    def fleet(self, layout: Layout) -> Fleet:
        if self._fleet is None or self._fleet.layout != layout:
            self.close()
            self._fleet = self.enter_context(Fleet(self._new_home(), layout))
        return self._fleet

    def close(self) -> None:
        self._fleet = None
        super().close()
