"""`aegish-dist worker`: a worker process of a fleet.

It becomes another program, so all that both would import is left to that one.
"""

import os
import sys

import click

from aegish_dist.cli.command import PORT_NUMBER, advanced, command, flag, metrics_host


@command(
    "aegish-dist worker --concurrency 64",
    "aegish-dist worker --models openai/gpt-5.1 --metrics-port 9810",
    context_settings={"ignore_unknown_options": True},
)
@click.option(
    "--models",
    multiple=True,
    metavar="ID[,ID...]",
    help="Serve only these models, of all runs. Default: all with work.",
)
@flag("--aggregate-only", help="Only compute results; call no models.")
@click.option("--concurrency", "-c", type=click.IntRange(1), help="Calls in flight at most.")
@advanced(
    "--metrics-port",
    type=PORT_NUMBER,
    help="Serve /metrics, /healthz and /readyz on this port; 0 takes a free one and logs it.",
)
@metrics_host
@click.argument("celery_options", nargs=-1, type=click.UNPROCESSED)
def worker(
    *,
    models: tuple[str, ...],
    aggregate_only: bool,
    concurrency: int | None,
    metrics_port: int | None,
    metrics_host: str | None,
    celery_options: tuple[str, ...],
) -> None:
    """Start a worker process of a fleet.

    It needs AEGISH_DIST_BROKER_URL, AEGISH_DIST_DATABASE_URL and the API keys of the models it
    serves. Start as many as you like, anywhere. SIGTERM lets calls in flight finish and gives the
    rest back to the queue. CELERY_OPTIONS are passed on to `celery -A workers.app worker`.
    """
    if models and aggregate_only:
        raise click.UsageError("--aggregate-only calls no model: leave out --models")
    command = [sys.executable, "-m", "workers"]
    if models or aggregate_only:
        # Only for a choice: the program that this one becomes imports all of it again.
        from aegish_dist.pipeline.workspace import worker_queues  # noqa: PLC0415

        command += ["-Q", ",".join(worker_queues(",".join(models)))]
    if concurrency:
        command += ["-c", str(concurrency)]
    # An allocator per thread keeps 2 MB to itself; these threads take turns anyway.
    os.environ.setdefault("MALLOC_ARENA_MAX", "1")
    if metrics_port is not None:
        os.environ["AEGISH_DIST_METRICS_PORT"] = str(metrics_port)
    if metrics_host is not None:
        os.environ["AEGISH_DIST_METRICS_HOST"] = metrics_host
    os.execv(command[0], [*command, *celery_options])  # noqa: S606  # nosec B606 # our own interpreter
