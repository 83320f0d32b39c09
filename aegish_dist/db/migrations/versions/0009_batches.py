"""Keep the batches that providers are asked at half price, and since when a model is asked so.

Old workers may keep running: they read no column that changed. They go on calling live what they
find in a queue, so a run with batches needs workers of this version alone.

Revision ID: 0009
Revises: 0008
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_MOMENT = sa.DateTime(timezone=True)


def upgrade() -> None:
    op.add_column("run_models", sa.Column("batch_from", sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "batches",
        sa.Column("id", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("run_model_id", sa.Integer(), nullable=False),
        sa.Column("token", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("requests", sa.Integer(), nullable=False),
        sa.Column("expected_usd", sa.Numeric(), nullable=True),
        sa.Column("created_at", _MOMENT, server_default=sa.func.now(), nullable=False),
        sa.Column("creating_at", _MOMENT, nullable=True),
        sa.Column("submitted_at", _MOMENT, nullable=True),
        sa.Column("ended_at", _MOMENT, nullable=True),
        sa.Column("cancelled_at", _MOMENT, nullable=True),
        sa.Column("due_at", _MOMENT, server_default=sa.func.now(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=True),
        sa.Column("failures", sa.SmallInteger(), server_default=sa.text("0"), nullable=False),
        sa.Column("provider_name", sa.Text(), nullable=True),
        sa.Column("adopted", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "refused_names", postgresql.JSONB(), server_default=sa.text("'[]'"), nullable=False
        ),
        sa.Column("counts", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.CheckConstraint(
            "state IN ('planned', 'creating', 'in_progress', 'collecting', 'ended')", name="state"
        ),
        sa.ForeignKeyConstraint(
            ["run_model_id"],
            ["run_models.id"],
            name="fk_batches_run_model_id_run_models",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_batches"),
        sa.UniqueConstraint("token", name="uq_batches_token"),
    )
    op.create_index(
        "ix_batches_due", "batches", ["due_at"], postgresql_where=sa.text("state <> 'ended'")
    )
    op.create_index("ix_batches_run_model_id", "batches", ["run_model_id"])
    op.create_table(
        "batched_items",
        sa.Column("run_model_id", sa.Integer(), nullable=False),
        sa.Column("sample_key", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.SmallInteger(), nullable=False),
        sa.Column("generation", sa.SmallInteger(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), nullable=True),
        sa.Column("tries", sa.SmallInteger(), server_default=sa.text("1"), nullable=False),
        sa.Column("live", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(
            ["run_model_id"],
            ["run_models.id"],
            name="fk_batched_items_run_model_id_run_models",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["batch_id"],
            ["batches.id"],
            name="fk_batched_items_batch_id_batches",
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint(
            "run_model_id", "sample_key", "epoch", "generation", name="pk_batched_items"
        ),
    )
    op.create_index("ix_batched_items_batch_id", "batched_items", ["batch_id"])


def downgrade() -> None:
    op.drop_table("batched_items")
    op.drop_table("batches")
    op.drop_column("run_models", "batch_from")
