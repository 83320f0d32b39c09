"""Finding, naming and listing runs."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Thread

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from aegish_dist.core.run import Run, RunSummary
from aegish_dist.core.text import did_you_mean, printable
from aegish_dist.db.embedded import running_url
from aegish_dist.db.engine import in_transaction, open_engine
from aegish_dist.db.runs import (
    LATEST,
    list_runs,
    load_run,
    newest_names,
    rename_run,
    resolve_run_id,
)
from aegish_dist.errors import ConfigError, ReportError, StoreError
from aegish_dist.settings import Settings

COMPLETED, AT_ONCE_S = 50, 0.3  # runs that a shell completes, and seconds that it waits for them
LONGEST_NAME = 100  # characters of a name that a user gives; it stands in tables
NAMED = 10  # known names that an error lists


def find_run(engine: Engine, text: str) -> str:
    """Return the run id that `latest`, a full id, a name or a unique prefix of an id stands for."""
    return in_transaction(engine, resolve_run_id, text)


def checked_name(text: str) -> str:
    """Return a name that a run may have, without blanks around it; empty for none.

    One that is too long, or could not be typed or printed, is a ConfigError.
    """
    name = text.strip()
    if name == LATEST:
        raise ConfigError(f"a run cannot be named '{LATEST}', which stands for the newest one")
    if len(name) > LONGEST_NAME:
        raise ConfigError(f"a name has at most {LONGEST_NAME} characters, this one {len(name)}")
    if "," in name:
        raise ConfigError(f"the name '{name}' holds a comma, which separates runs in `--runs`")
    if printable(name) != name:
        raise ConfigError(f"the name '{name}' holds characters that cannot be printed")
    return name


def rename(engine: Engine, run_id: str, name: str) -> str:
    """Give a run another name, as a user typed it, empty to have none; return it.

    One that no run may have, or that another run has, is a ConfigError.
    """
    checked = checked_name(name)
    in_transaction(engine, rename_run, run_id, checked)
    return checked


def recent_runs(engine: Engine, limit: int = 0) -> list[RunSummary]:
    """Return the newest runs, newest first.

    Args:
        limit: Runs at most; 0: all.
    """
    return in_transaction(engine, list_runs, limit or None)


def names_at_hand(settings: Settings, *, guards: bool = False) -> list[str]:
    """Return ids and names of the newest runs, or the guards of the newest one.

    There are none unless the store answers at once; nothing is started.
    """
    found: list[str] = []

    def look() -> None:
        named = settings.database_url
        with suppress(Exception):
            url = running_url(settings.home) if named is None else named.get_secret_value()
            if url is None:
                return
            with Session(open_engine(url)) as session:
                newest = newest_names(session, COMPLETED)
                if guards:
                    run = load_run(session, newest[0][0])
                    found.extend(spec.id for spec in run.models)
                    return
                for names in newest:
                    found.extend(name for name in names if name)

    looking = Thread(target=look, daemon=True)  # a server that is away takes seconds to be so
    looking.start()
    looking.join(AT_ONCE_S)
    return found


def chosen_models(run: Run, named: Sequence[str] = (), policies: Sequence[str] = ()) -> list[str]:
    """Return models of a run that a user names, each once; all of the run when none is named.

    Policies may be named, too; those that are not come last. A name that the run does not ask is a
    StoreError.
    """
    models = [spec.id for spec in run.models]
    require_names(run, "model", named, [*models, *policies])
    return list(dict.fromkeys([*(named or models), *policies]))


def require_names(run: Run, what: str, names: Iterable[str], known: Sequence[str]) -> None:
    """Refuse a name that a run does not have; `what` says in a word what it names."""
    for name in names:
        if name in known:
            continue
        listed = ", ".join(known[:NAMED]) or "none"
        if len(known) > NAMED:
            listed += ", ..."
        hint = did_you_mean(name, known, f"it has {listed}")
        raise StoreError(f"run {run.run_id} has no {what} '{name}': {hint}")


def require_asked(run: Run, models: Iterable[str], datasets: Iterable[str] = ()) -> None:
    require_names(run, "model", models, [spec.id for spec in run.models])
    require_names(run, "dataset", datasets, [each.name for each in run.datasets])


def no_verdict(run_id: str) -> ReportError:
    """Return the error about a run of which nothing can be shown yet."""
    return ReportError(
        f"run {run_id} has no verdict yet: `aegish-dist status --run-id {run_id}` "
        "shows how far it is"
    )


def load_submitted_run(engine: Engine, run_id: str) -> Run:
    """Return a run whose models can be asked; an imported one has no prompt, a StoreError."""
    run = in_transaction(engine, load_run, run_id)
    if run.prompt is None:
        raise StoreError(f"run {run_id} was imported: its models cannot be asked from here")
    return run


def require_not_held(run: Run) -> None:
    """Refuse a run that workers would ask nothing of."""
    if run.held is not None:
        raise StoreError(
            f"run {run.run_id} is {run.held}: `aegish-dist resume --run-id {run.run_id}`"
            " goes on with it first"
        )
