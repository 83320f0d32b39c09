"""The Celery application of the workers, for `celery -A workers.app worker`."""

import os
from typing import Any

from celery import Celery, signals
from celery.apps.worker import Worker
from celery.utils.nodenames import default_nodename
from celery.utils.text import str_to_list

from aegish_dist.broker.app import create_app, process_of
from aegish_dist.broker.messages import AGGREGATION_QUEUE, IDLE_QUEUE, is_pin
from aegish_dist.errors import AegishError, ConfigError
from aegish_dist.logs import configure_logging, get_logger
from aegish_dist.settings import load_settings
from aegish_dist.telemetry.tracing import start_tracing
from workers.consumer import PrefetchPerWorker
from workers.run_watch import RunWatch

log = get_logger(__name__)


class QuietWorker(Worker):
    """A worker with a name of its own, models as `-Q`, and without messages to other workers."""

    hostname: str
    # Names of `-Q` that discovery is restricted to; empty: all queues.
    pins: frozenset[str] = frozenset()

    def on_before_init(self, **kwargs: Any) -> None:
        """Name the worker unless the command line does, and refuse any pool but ours.

        Celery names every worker `celery`, and RabbitMQ refuses a second one of the same name.
        """
        pool = kwargs.get("pool") or kwargs.get("pool_cls")
        if pool is not None and getattr(pool, "__module__", pool) != "workers.pool":
            raise SystemExit(
                "error: a worker has a pool of its own, which makes hundreds of calls at a time:"
                " leave out --pool and set their number with -c N"
            )
        if self.hostname == default_nodename(None):
            self.hostname = default_nodename(f"aegish-{os.getpid()}@")
        super().on_before_init(**kwargs)

    def setup_queues(self, include: Any, exclude: Any = None) -> None:
        """Read `-Q`: a name of ours stands for the queues of a model, now and later."""
        names = str_to_list(include) or []
        self.pins = frozenset(filter(is_pin, names))
        process_of(self.app).calls_models = self.pins != {AGGREGATION_QUEUE}
        if self.pins:
            names = [IDLE_QUEUE, *(name for name in names if name not in self.pins)]
        super().setup_queues(names, exclude)

    def prepare_args(self, **kwargs: Any) -> dict[str, Any]:
        """Switch off what Celery workers say to each other, which has no use here."""
        return {**kwargs, "without_gossip": True, "without_mingle": True}


def _build() -> Celery:
    settings = load_settings()
    if settings.broker_url is None or settings.database_url is None:
        raise ConfigError(
            "a worker needs AEGISH_DIST_BROKER_URL and AEGISH_DIST_DATABASE_URL; "
            "without them `aegish-dist submit` runs everything itself"
        )
    configure_logging(settings.log_level or "INFO", settings.log_format)
    start_tracing(os.environ)
    worker_app = create_app(settings)
    worker_app.Worker = worker_app.subclass_with_self(QuietWorker)
    worker_app.steps["consumer"].update({PrefetchPerWorker, RunWatch})
    # Celery configures logging by itself unless this signal has a receiver.
    signals.setup_logging.connect(lambda **_: None, weak=False)
    return worker_app


try:
    app = _build()
except AegishError as error:
    # Celery would show a traceback.
    raise SystemExit(f"error: {error}") from None
