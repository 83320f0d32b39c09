"""`aegish-dist exporter`: measures of a fleet for Prometheus."""

import click

from aegish_dist.cli.options import FiniteRange, open_workspace
from aegish_dist.cli.printing import note
from aegish_dist.errors import ConfigError

PORT = 9811


@click.command()
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help=f"Port to serve /metrics, /healthz and /readyz on; 0 takes a free one.  [default: {PORT}]",
)
@click.option(
    "--metrics-host",
    metavar="ADDRESS",
    help="Address of this machine to serve them on.  [default: 127.0.0.1]",
)
@click.option(
    "--interval",
    type=FiniteRange(0.5, 60),
    default=5.0,
    show_default=True,
    help="Seconds between two readings of database, broker and limiter.",
)
def exporter(metrics_port: int | None, metrics_host: str | None, interval: float) -> None:
    """Serve Prometheus what only the database, the broker and the limiter know.

    Queues, workers, runs, spend against caps, aggregations, batches, tables, and the items that
    workers are wanted for, which autoscaling follows. It needs AEGISH_DIST_BROKER_URL and
    AEGISH_DIST_DATABASE_URL, and no key. One per fleet is enough; it writes nothing.
    """
    workspace = open_workspace()
    settings = workspace.settings
    if settings.embedded_broker:
        raise ConfigError(
            "the exporter reads a cluster: set AEGISH_DIST_BROKER_URL and AEGISH_DIST_DATABASE_URL"
        )
    from aegish_dist.pipeline.fleet import export_measures  # noqa: PLC0415  needs Celery

    port = next(each for each in (metrics_port, settings.metrics_port, PORT) if each is not None)
    export_measures(
        database_url=workspace.database_url,
        app=workspace.app,
        limiter_url=settings.shared_limiter_url,
        host=metrics_host or settings.metrics_host,
        port=port,
        interval_s=interval,
        on_ready=lambda url: note(f"measures at {url}/metrics"),
    )
