"""The workspace of a command that asks models, or works on what was asked of them."""

from collections.abc import Iterable
from functools import partial

from aegish_dist.cli.options import completes, names, opened
from aegish_dist.pipeline.workspace import Workspace
from aegish_dist.settings import Settings, load_settings


def open_workspace(settings: Settings | None = None) -> Workspace:
    """Return the workspace of the environment; it is closed when the command ends."""
    return opened(Workspace(settings or load_settings()))


def open_run_to_ask(run_id: str) -> tuple[Workspace, str]:
    """Return the workspace of the environment, and the whole id of a run in its store."""
    from aegish_dist.pipeline.runs import find_run  # noqa: PLC0415  brings the store

    workspace = open_workspace()
    return workspace, find_run(workspace.engine, run_id)


def catalog_models() -> Iterable[str]:
    from aegish_dist.models.catalog import LIST_PRICES, Catalog  # noqa: PLC0415

    settings = load_settings()
    catalog = Catalog.load(settings.catalog, settings.cache / LIST_PRICES)
    return *catalog.models, *catalog.variants


# The option of commands that ask models of the catalog; `names` completes those of a run.
models = partial(names, "--models", shell_complete=completes(catalog_models))
