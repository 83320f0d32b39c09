"""The Celery application of the workers: `celery -A workers.app worker` works as it stands."""

from typing import Any

from celery import Celery, signals
from celery.apps.worker import Worker

from aegish_dist.errors import ConfigError
from aegish_dist.logs import configure_logging
from aegish_dist.queue.app import create_app
from aegish_dist.settings import load_settings
from workers.discovery import QueueDiscovery


class QuietWorker(Worker):
    """A worker that neither gossips nor mingles: both cost messages and gain nothing here."""

    def prepare_args(self, **kwargs: Any) -> dict[str, Any]:
        """Switch both off, whatever the command line says."""
        return {**kwargs, "without_gossip": True, "without_mingle": True}


def _build() -> Celery:
    settings = load_settings()
    if settings.broker_url is None or settings.database_url is None:
        raise ConfigError(
            "a worker needs AEGISH_DIST_BROKER_URL and AEGISH_DIST_DATABASE_URL; "
            "without them `aegish-dist submit` runs everything itself"
        )
    worker_app = create_app(
        settings.broker_url.get_secret_value(),
        database_url=settings.database_url.get_secret_value(),
        limiter_url=settings.shared_limiter_url,
        concurrency=settings.concurrency,
        shutdown_grace_s=settings.shutdown_grace_s,
    )
    worker_app.Worker = worker_app.subclass_with_self(QuietWorker)
    worker_app.steps["consumer"].add(QueueDiscovery)
    signals.setup_logging.connect(
        lambda **_: configure_logging(settings.log_level or "INFO", settings.log_format), weak=False
    )
    return worker_app


app = _build()
