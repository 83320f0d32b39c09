"""Name the queues of unfinished runs as they are named now: one for each model of each run.

Workers that stop being served by the old names find the new ones within a second. What still lies
in an old queue is missing in the store, so `resume` enqueues it.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

OLD, NEW = "'aegish.' || model", "'aegish.' || model || '#' || run_id"


def upgrade() -> None:
    op.execute(f"UPDATE run_models SET queue = {NEW} WHERE queue = {OLD}")


def downgrade() -> None:
    op.execute(f"UPDATE run_models SET queue = {OLD} WHERE queue = {NEW}")
