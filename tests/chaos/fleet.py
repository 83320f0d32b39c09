"""Everything a drill needs: servers, proxies before them, a provider, and worker processes.

Workers reach PostgreSQL and the broker through proxies; the drill itself goes past them.
"""

import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from msgspec import Struct
from sqlalchemy import make_url, text
from sqlalchemy.orm import Session

from aegish_dist.core.model import CallParameters
from aegish_dist.core.sample import Dataset, Sample, TrueLabel
from aegish_dist.core.verdict import Item
from aegish_dist.models import Catalog
from aegish_dist.pipeline.control import enqueue_missing
from aegish_dist.pipeline.plan import RunPlan
from aegish_dist.pipeline.submit import submit
from aegish_dist.prompts.loading import load_prompt
from aegish_dist.ratelimit.shared_limiter import probe_now
from tests.chaos.provider import Provider
from tests.chaos.servers import CuttingProxy, Postgres
from tests.cluster import Cluster, run
from tests.half_open import HalfOpenProxy
from tests.services import HOST, RabbitServer, RedisServer

PROVIDERS = ("drilled", "drilled-anthropic")
CATALOG = """
[providers.drilled]
wire = "openai"
base_url = "{url}/v1"
key_variable = ""

[providers.drilled-anthropic]
wire = "anthropic"
base_url = "{url}"
key_variable = ""
"""
GRACE_S = 10.0
LOG_CHARS = 12_000
"""Of the workers' log, shown where a drill fails."""

Identity = tuple[int, int, int, int]


class Layout(Struct, frozen=True):
    """Parts of a fleet; drills of the same layout share one."""

    broker: str = "redis"
    queue_type: str = "classic"
    workers: int = 2
    concurrency: int = 10
    """Calls that each of them has in flight at most."""
    lease_s: float = 40.0
    """Seconds after which a killed worker's messages are requeued in Redis."""


class Fleet:
    """A running fleet; ends with the `with`."""

    def __init__(self, home: Path, layout: Layout) -> None:
        self.home, self.layout = home, layout
        self.workers: list[subprocess.Popen[bytes]] = []
        self._stack = ExitStack()
        self._models: list[str] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def _start(self) -> None:
        enter, layout = self._stack.enter_context, self.layout
        self.provider = enter(Provider())
        self.postgres = enter(Postgres())
        self.broker: RabbitServer | RedisServer
        rabbit = layout.broker == "rabbitmq"
        self.broker = enter(RabbitServer(self.home)) if rabbit else enter(RedisServer(self.home))
        self.database_proxy = enter(CuttingProxy.to_postgres(self.postgres.url))
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
        self.app = self.cluster.app
        self.cluster.set(
            catalog=catalog,
            home=self.home / "kept",
            concurrency=layout.concurrency,
            shutdown_grace_s=GRACE_S,
            message_lease_s=layout.lease_s,
        )
        self._direct = dict(self.cluster.env)
        self.cluster.set(
            database_url=self.database_proxy.postgres_url(self.postgres.url),
            broker_url=self.broker.url.replace(
                f":{self.broker.port}/", f":{self.broker_proxy.port}/"
            ),
        )

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def log(self) -> str:
        """Return the last words of the workers."""
        return self.cluster.log()[-LOG_CHARS:]

    def start_worker(self) -> None:
        """Start a worker process without waiting for it."""
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

    def submit(self, name: str, commands: list[str], time_limit_s: float) -> str:
        """Submit a run over commands to a model of each provider and return its id.

        Args:
            name: Of the models; what the limiter learnt of others does not touch them.
        """
        self._models = [f"{provider}/{name}" for provider in PROVIDERS]
        samples = tuple(Sample(command, TrueLabel.HARMLESS) for command in commands)
        submission = RunPlan(
            models=self.catalog.resolve(self._models, {}),
            datasets=(Dataset("drill", samples),),
            prompt=load_prompt("guard"),
            parameters=CallParameters(time_limit_s=time_limit_s),
            epochs=1,
        )
        return submit(self.cluster.engine, self.app, submission).run_id

    def resume(self, run_id: str) -> None:
        """Enqueue what a run lacks, as `resume` does."""
        enqueue_missing(self.cluster.engine, self.app, run_id)
        if self.layout.broker == "redis":
            probe_now(self.broker.url, self._models)

    def command(self, *arguments: str) -> None:
        """Run a command of the product past the proxies."""
        run(self._direct, *arguments)

    def missing(self, run_id: str) -> list[Item]:
        return self.cluster.missing(run_id)

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

    def outcomes(self, run_id: str) -> Mapping[str, int]:
        """Return the verdicts of a run by outcome, each item's newest alone."""
        query = text(
            "SELECT outcome, count(*) FROM (SELECT DISTINCT ON (run_model_id, sample_key, epoch)"
            " outcome FROM verdicts"
            " WHERE run_model_id IN (SELECT id FROM run_models WHERE run_id = :run)"
            " ORDER BY run_model_id, sample_key, epoch, generation DESC) AS newest GROUP BY 1"
        )
        with Session(self.cluster.engine) as session:
            return {str(name): int(n) for name, n in session.execute(query, {"run": run_id})}


class Host:
    """Keeps one fleet running for those that need its layout; a context manager."""

    def __init__(self, new_home: Callable[[], Path]) -> None:
        """Begin without one.

        Args:
            new_home: Makes an empty directory for a fleet.
        """
        self._new_home = new_home
        self._stack = ExitStack()
        self._fleet: Fleet | None = None

    def fleet(self, layout: Layout) -> Fleet:
        """Return a running fleet of a layout; ends one of another layout."""
        if self._fleet is None or self._fleet.layout != layout:
            self.close()
            self._fleet = self._stack.enter_context(Fleet(self._new_home(), layout))
        return self._fleet

    def close(self) -> None:
        """End the fleet; the next one is new."""
        self._fleet = None
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
