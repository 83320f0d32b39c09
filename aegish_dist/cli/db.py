"""`aegish-dist db`: the schema."""

import click

from aegish_dist.cli.context import Workspace
from aegish_dist.cli.printing import note, say
from aegish_dist.db.schema import current, drift, head, require_current, upgrade


@click.group()
def db() -> None:
    """Migrate the database."""


@db.command("upgrade")
def upgrade_() -> None:
    """Bring the schema to the version this package needs."""
    engine = Workspace().raw_engine
    before = current(engine)
    upgrade(engine)
    say(f"{before or 'nothing'} -> {current(engine)}")


@db.command("current")
def current_() -> None:
    """Print the version of the schema."""
    say(current(Workspace().raw_engine) or "nothing")


@db.command()
def check() -> int:
    """Check that the schema is the one this package needs."""
    engine = Workspace().raw_engine
    require_current(engine)
    differences = drift(engine)
    for difference in differences:
        say(difference)
    note(f"at {head()}: {len(differences)} differences from the mappings")
    return 1 if differences else 0
