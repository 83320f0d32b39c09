"""`aegish-dist doctor`: what is configured, reachable and wrong."""

import click

from aegish_dist.cli.context import open_workspace
from aegish_dist.cli.options import as_json
from aegish_dist.cli.printing import say, say_json
from aegish_dist.pipeline.examine import Check, examine


@click.command()
@as_json
def doctor(as_json: bool) -> int:
    """Tell what is configured, reachable and wrong, each with its remedy.

    The exit code is 1 when something has to be mended.
    """
    workspace = open_workspace()
    findings = examine(
        database=lambda: workspace.raw_engine,
        app=None if workspace.settings.embedded_broker else workspace.app,
        limiter_url=workspace.settings.shared_limiter_url,
        catalog=lambda: workspace.catalog,
        environ=workspace.environ,
        embedded_database=workspace.settings.embedded_database,
    )
    if as_json:
        say_json([{"what": f.what, "ok": f.ok, "detail": f.detail} for f in findings])
    else:
        for finding in findings:
            say(_line(finding))
    return 0 if all(finding.ok for finding in findings) else 1


def _line(finding: Check) -> str:
    return f"{'ok ' if finding.ok else 'BAD'}  {finding.what:10} {finding.detail}"
