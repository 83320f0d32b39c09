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


def upgrade() -> None:
    op.execute(
        "UPDATE run_models SET queue = queue || '#' || run_id WHERE queue = 'aegish.' || model"
    )


def downgrade() -> None:
    op.execute(
        "UPDATE run_models SET queue = 'aegish.' || model"
        " WHERE queue = 'aegish.' || model || '#' || run_id"
    )
