"""Keep which workers died while they read the answer of an item.

Old workers may keep running: they note nothing while they read, so their deaths are not counted.

Revision ID: 0004
Revises: 0003
"""

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_TABLE = """
CREATE TABLE reading_deaths (
    run_model_id integer CONSTRAINT fk_reading_deaths_run_model_id_run_models
        REFERENCES run_models ON DELETE CASCADE,
    sample_key bigint,
    epoch smallint,
    generation smallint,
    worker text,
    at timestamptz NOT NULL DEFAULT now(),
    CONSTRAINT pk_reading_deaths
        PRIMARY KEY (run_model_id, sample_key, epoch, generation, worker),
    CONSTRAINT ck_reading_deaths_bounds CHECK (
        at BETWEEN '0001-01-01 00:00+00' AND '9999-12-30 00:00+00'
        AND octet_length(worker) <= 65536)
)
"""


def upgrade() -> None:
    op.get_bind().exec_driver_sql(_TABLE)


def downgrade() -> None:
    op.drop_table("reading_deaths")
