"""Migrating the store and checking its schema."""

from sqlalchemy import Engine

from aegish_dist.db.schema import current, drift, head, require_current, upgrade


def upgrade_schema(engine: Engine) -> tuple[str | None, str | None]:
    """Bring the schema to the version this package needs.

    Returns:
        The versions before and after; None for an empty database.

    Raises:
        StoreError: Another migration holds the lock, or the database cannot be reached.
    """
    before = current(engine)
    upgrade(engine)
    return before, current(engine)


def schema_version(engine: Engine) -> str | None:
    """Return the version of the schema; None for an empty database."""
    return current(engine)


def check_schema(engine: Engine) -> tuple[str, list[str]]:
    """Compare the schema with the mappings of this package.

    Returns:
        The version that this package needs, and a line for each difference.
    """
    require_current(engine)
    return head(), drift(engine)
