"""`aegish-dist doctor`: what is configured, reachable and wrong."""

import click

from aegish_dist.cli.options import as_json, open_workspace
from aegish_dist.cli.printing import say, say_json
from aegish_dist.pipeline.doctor import Check, examine


@click.command()
@click.option(
    "--fleet", is_flag=True, help="Also versions of workers, clocks, and limits of the servers."
)
@as_json
def doctor(*, fleet: bool, as_json: bool) -> int:
    """Tell what is configured, reachable and wrong, each with its remedy.

    The exit code is 1 when something has to be mended.
    """
    workspace = open_workspace()
    checks = examine(
        database=lambda: workspace.raw_engine,
        app=None if workspace.settings.embedded_broker else workspace.app,
        limiter_url=workspace.settings.shared_limiter_url,
        catalog=lambda: workspace.catalog,
        environ=workspace.environ,
        embedded_database=workspace.settings.embedded_database,
    )
    if fleet:
        from aegish_dist.pipeline.doctor import examine_fleet  # noqa: PLC0415

        app = None if workspace.settings.embedded_broker else workspace.app
        url = workspace.settings.shared_limiter_url
        checks += examine_fleet(workspace.raw_engine, app, url)
    if as_json:
        say_json([{"what": c.part, "ok": c.ok, "detail": c.detail} for c in checks])
    else:
        for check in checks:
            say(_line(check))
    return 0 if all(check.ok for check in checks) else 1


def _line(check: Check) -> str:
    return f"{'ok ' if check.ok else 'BAD'}  {check.part:12} {check.detail}"
