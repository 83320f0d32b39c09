"""Keep what a run has lost to pruning, what a worker says of itself, and tables fit for months.

Old workers may keep running: they neither read nor write the new columns, which are null or 0 for
them. No table is rewritten; storage parameters wait for no reader and no writer.

Revision ID: 0010
Revises: 0009
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

# `verdicts` and `call_errors` grow and hardly change. Each vacuum freezes what it visits, so that
# none has to visit it again for the age of its transactions. The shares of a table of 10^8 rows
# that PostgreSQL waits for by itself, 2 * 10^7 rows, would be days of a fleet's work.
_GROWING = """
    autovacuum_freeze_min_age = 0, autovacuum_multixact_freeze_min_age = 0,
    autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.02
"""
_SETTINGS = {
    "verdicts": _GROWING,
    "call_errors": _GROWING,
    # Rows come and go: a queue. Looking for what is due would read all that were once there.
    "batched_items": "autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000",
    # Few rows, rewritten again and again: room in their page keeps their index as it is.
    "batches": "fillfactor = 60",
    "workers": "fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500",
}


def _names(settings: str) -> str:
    return ", ".join(each.partition("=")[0].strip() for each in settings.split(","))


def upgrade() -> None:
    op.add_column(
        "runs",
        sa.Column(
            "pruned_completions", sa.BigInteger(), server_default=sa.text("0"), nullable=False
        ),
    )
    op.add_column("runs", sa.Column("pruned_at", sa.DateTime(timezone=True), nullable=True))
    op.add_column("workers", sa.Column("about", postgresql.JSONB(), nullable=True))
    for table, settings in _SETTINGS.items():
        op.execute(f"ALTER TABLE {table} SET ({settings})")


def downgrade() -> None:
    for table, settings in _SETTINGS.items():
        op.execute(f"ALTER TABLE {table} RESET ({_names(settings)})")
    op.execute("ALTER TABLE verdicts SET (autovacuum_vacuum_insert_scale_factor = 0.02)")
    op.drop_column("workers", "about")
    op.drop_column("runs", "pruned_at")
    op.drop_column("runs", "pruned_completions")
