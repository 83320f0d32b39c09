"""Plan items once more: retries, and the items that each of them asks again.

Old workers may keep running until the first `retry`: they would stop listening to a model whose
retry is under way, because they count first tries only.

Revision ID: 0005
Revises: 0004
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

KEY = ("run_model_id", "sample_key", "epoch", "generation")


def upgrade() -> None:
    op.create_table(
        "retries",
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("generation", sa.SmallInteger(), nullable=False),
        sa.Column("outcomes", sa.ARRAY(sa.Text()), nullable=False),
        sa.Column("items", sa.BigInteger(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            server_default=sa.text("now()"),
            nullable=False,
        ),
        sa.CheckConstraint("generation >= 1", name=op.f("ck_retries_generation")),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.id"], name=op.f("fk_retries_run_id_runs"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", "generation", name=op.f("pk_retries")),
    )
    op.create_table(
        "retried_items",
        sa.Column("run_model_id", sa.Integer(), nullable=False),
        sa.Column("sample_key", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.SmallInteger(), nullable=False),
        sa.Column("generation", sa.SmallInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_model_id"],
            ["run_models.id"],
            name=op.f("fk_retried_items_run_model_id_run_models"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint(*KEY, name=op.f("pk_retried_items")),
    )


def downgrade() -> None:
    op.drop_table("retried_items")
    op.drop_table("retries")
