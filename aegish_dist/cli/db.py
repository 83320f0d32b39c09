"""`aegish-dist db`: the schema."""

import click

from aegish_dist.cli.options import open_workspace
from aegish_dist.cli.printing import note, say
from aegish_dist.pipeline.schema import check_schema, schema_version, upgrade_schema


@click.group()
def db() -> None:
    """Migrate the database."""


@db.command("upgrade")
def upgrade_() -> None:
    """Bring the schema to the version this package needs."""
    before, after = upgrade_schema(open_workspace().raw_engine)
    say(f"{before or 'nothing'} -> {after}")


@db.command("current")
def current_() -> None:
    """Print the version of the schema."""
    say(schema_version(open_workspace().raw_engine) or "nothing")


@db.command()
def check() -> int:
    """Check that the schema is the one this package needs."""
    head, differences = check_schema(open_workspace().raw_engine)
    for difference in differences:
        say(difference)
    note(f"at {head}: {len(differences)} differences from the mappings")
    return 1 if differences else 0
