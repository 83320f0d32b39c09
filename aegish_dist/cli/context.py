"""The workspace of a command, and the garbage collector while it works."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import click

from aegish_dist.logs import configure_logging
from aegish_dist.pipeline.workspace import Workspace
from aegish_dist.settings import Settings, load_settings


def open_workspace(settings: Settings | None = None) -> Workspace:
    """Return the workspace of the environment; it is closed when the command ends.

    Raises:
        ConfigError: A variable of the environment cannot be used.
    """
    workspace = Workspace(settings or load_settings())
    configure_logging(workspace.settings.log_level or "WARNING", workspace.settings.log_format)
    workspace.start_tracing()
    click.get_current_context().call_on_close(workspace.close)
    return workspace


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause the search for cycles: rows hold none, and it takes up to a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
