"""`aegish-dist db`, `exporter`, `doctor`: the schema, measures for Prometheus, what is wrong."""

import click

from aegish_dist.cli.command import PORT_NUMBER, command, flag, group, metrics_host
from aegish_dist.cli.options import FiniteRange, as_json, open_store
from aegish_dist.cli.printing import note, say, say_json
from aegish_dist.cli.workspace import open_workspace
from aegish_dist.errors import ConfigError
from aegish_dist.pipeline.workspace import check_schema, schema_version, upgrade_schema


@group("aegish-dist db upgrade")
def db() -> None:
    """Migrate the database."""


@db.command("upgrade", examples=("aegish-dist db upgrade",))
def upgrade_() -> None:
    """Bring the schema to the version this package needs."""
    before, after = upgrade_schema(open_store().raw_engine)
    old = before or "nothing"
    say(f"{old} -> {after}")


@db.command("current", examples=("aegish-dist db current",))
def current_() -> None:
    """Print the version of the schema."""
    say(schema_version(open_store().raw_engine) or "nothing")


@db.command(examples=("aegish-dist db check",))
def check() -> int:
    """Check that the schema is the one this package needs."""
    # The other engine refuses any schema but the one that this package needs.
    head, differences = check_schema(open_store().raw_engine)
    say(*differences)
    note(f"at {head}: {len(differences)} differences from the mappings")
    return 1 if differences else 0


PORT = 9811


@command("aegish-dist exporter --metrics-port 9811")
@click.option(
    "--metrics-port",
    type=PORT_NUMBER,
    help=f"Port to serve /metrics, /healthz and /readyz on; 0 takes a free one.  [default: {PORT}]",
)
@metrics_host
@click.option(
    "--interval",
    type=FiniteRange(0.5, 60),
    default=5.0,
    help="Seconds between two readings of database, broker and limiter.",
)
def exporter(metrics_port: int | None, metrics_host: str | None, interval: float) -> None:
    """Serve fleet-wide metrics of database, broker and limiter to Prometheus.

    Queues, workers, runs, spend against caps, aggregations, batches, tables, and the number of
    items that need workers, for autoscaling. It needs AEGISH_DIST_BROKER_URL and
    AEGISH_DIST_DATABASE_URL, and no key. One per fleet is enough; it writes nothing.
    """
    workspace = open_workspace()
    settings = workspace.settings
    if settings.embedded_broker:
        raise ConfigError(
            "the exporter reads a fleet: set AEGISH_DIST_BROKER_URL and AEGISH_DIST_DATABASE_URL"
        )
    from aegish_dist.pipeline.fleet import export_measures  # noqa: PLC0415  needs Celery

    port = settings.metrics_port if metrics_port is None else metrics_port
    export_measures(
        database_url=workspace.database_url,
        app=workspace.app,
        limiter_url=settings.shared_limiter_url,
        host=metrics_host or settings.metrics_host,
        port=PORT if port is None else port,
        interval_s=interval,
        on_ready=lambda url: note(f"measures at {url}/metrics"),
    )


@command("aegish-dist doctor", "aegish-dist doctor --fleet")
@flag("--fleet", help="Also versions of workers, clocks, and limits of the servers.")
@as_json
def doctor(*, fleet: bool, as_json: bool) -> int:
    """Check the configuration and the servers, and say how to mend what is wrong.

    The exit code is 1 when something is wrong.
    """
    from aegish_dist.pipeline.doctor import examine, examine_fleet  # noqa: PLC0415  needs Celery

    workspace = open_workspace()
    settings = workspace.settings
    checks = examine(workspace)
    if fleet:
        app = None if settings.embedded_broker else workspace.app
        checks += examine_fleet(workspace.raw_engine, app, settings.shared_limiter_url)
    documents = []
    lines = []
    for check in checks:
        documents.append({"what": check.part, "ok": check.ok, "detail": check.detail})
        sign = "ok " if check.ok else "BAD"
        lines.append(f"{sign}  {check.part:12} {check.detail}")
    if as_json:
        say_json(documents)
    else:
        say(*lines)
    return 0 if all(check.ok for check in checks) else 1
