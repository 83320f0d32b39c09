"""Keep which datasets an imported model was put to: the others are not missing.

Old workers may keep running: they read no column that changed.

Revision ID: 0007
Revises: 0006
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "run_models", sa.Column("datasets", postgresql.ARRAY(sa.Integer()), nullable=True)
    )
    op.execute("""
        UPDATE run_models AS model SET datasets = ARRAY(
            SELECT asked.dataset_id FROM run_datasets AS asked
            WHERE asked.run_id = model.run_id AND EXISTS (
                SELECT FROM samples AS sample
                JOIN verdicts AS verdict
                  ON verdict.run_model_id = model.id AND verdict.sample_key = sample.key
                WHERE sample.dataset_id = asked.dataset_id)
            ORDER BY asked.dataset_id)
        FROM runs AS run WHERE run.id = model.run_id AND run.origin = 'import'
    """)


def downgrade() -> None:
    op.drop_column("run_models", "datasets")
