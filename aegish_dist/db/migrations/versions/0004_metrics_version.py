"""Keep with each snapshot the version of the formulas that made it.

Old workers may keep running: they write no snapshot. Snapshots that are there get version 0, which
no formulas have, so the next report counts anew.

Revision ID: 0004
Revises: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "snapshots",
        sa.Column(
            "metrics_version", sa.SmallInteger(), server_default=sa.text("0"), nullable=False
        ),
    )


def downgrade() -> None:
    op.drop_column("snapshots", "metrics_version")
