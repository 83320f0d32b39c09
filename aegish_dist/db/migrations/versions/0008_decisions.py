"""Keep what holds a run, when it stops by itself, its aggregations, and whose opinion a number is.

Old workers may keep running: they read no column that changed. They go on with a run that is held,
and no aggregation is made by them.

Revision ID: 0008
Revises: 0007
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("runs", sa.Column("held", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("stop_rule", postgresql.JSONB(), nullable=True))
    op.add_column("runs", sa.Column("decision", postgresql.JSONB(), nullable=True))
    op.create_check_constraint("held", "runs", "held IN ('paused', 'cancelled', 'decided')")
    op.add_column(
        "snapshots",
        sa.Column("opinion", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
    )
    op.create_table(
        "aggregations",
        sa.Column("id", sa.Integer(), sa.Identity(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("completion", sa.Text(), nullable=True),
        sa.Column("scoring", sa.Text(), nullable=False),
        sa.Column(
            "requested_at", sa.DateTime(timezone=True), server_default=sa.func.now(), nullable=False
        ),
        sa.Column("enqueued_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("snapshot_ids", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name="fk_aggregations_run_id_runs", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_aggregations"),
        sa.UniqueConstraint("run_id", "completion", name="uq_aggregations_run_id_completion"),
    )
    op.create_index(
        "ix_aggregations_open",
        "aggregations",
        ["id"],
        postgresql_where=sa.text("finished_at IS NULL"),
    )


def downgrade() -> None:
    op.drop_table("aggregations")
    op.drop_column("snapshots", "opinion")
    for column in ("decision", "stop_rule", "held"):
        op.drop_column("runs", column)
