"""Give models of a run prompts of their own.

Old workers may keep running beside runs with one prompt. They do not read the column, and would ask
every model of a run with the prompt of the run: stop them before a run with several is submitted.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("run_models", sa.Column("prompt_id", sa.Integer(), nullable=True))
    name = "fk_run_models_prompt_id_prompts"
    op.create_foreign_key(name, "run_models", "prompts", ["prompt_id"], ["id"])


def downgrade() -> None:
    op.drop_column("run_models", "prompt_id")
