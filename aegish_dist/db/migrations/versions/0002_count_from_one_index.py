"""Count verdicts from one index, and check their references by statement.

Old workers may keep running: they write no column that changed. While the table is rewritten, a
minute per ten million verdicts, they wait.

The primary key now carries all that aggregating and `status` read, 40 bytes become 130, so that
neither touches the texts. Foreign keys cost 5 of the 17 microseconds that PostgreSQL spends on a
verdict, and locked the rows of the run's models; a trigger checks a whole statement at once.

Revision ID: 0002
Revises: 0001
"""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KEY = "run_model_id, sample_key, epoch, generation"
CODE = """
    (100 * coalesce(array_position(ARRAY['deadline', 'rate_limit', 'quota', 'auth', 'bad_request',
       'not_found', 'overloaded', 'server', 'connection', 'malformed'], error_class), 0)
     + 10 * coalesce(array_position(ARRAY['ALLOW', 'WARN', 'BLOCK', 'TIMEOUT_ERROR', 'FORMAT_ERROR',
       'API_ERROR'], outcome), 0)
     + coalesce(array_position(ARRAY['stop', 'max_tokens', 'content_filter', 'other'], stop_kind), 0)
    )::smallint
"""
COVERED = """
    code, parser_version, stored_at, confidence, service_ms, queue_ms, limiter_ms, backoff_ms,
    total_ms, input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, cache_write_tokens,
    cost_usd
"""


def _replace_key(include: str) -> None:
    op.drop_constraint("fk_call_errors_verdicts", "call_errors")
    op.drop_constraint("pk_verdicts", "verdicts")
    op.execute(f"ALTER TABLE verdicts ADD CONSTRAINT pk_verdicts PRIMARY KEY ({KEY}){include}")
    op.execute(
        "ALTER TABLE call_errors ADD CONSTRAINT fk_call_errors_verdicts"
        f" FOREIGN KEY ({KEY}) REFERENCES verdicts ({KEY}) ON DELETE CASCADE"
    )


def upgrade() -> None:
    op.execute(
        f"ALTER TABLE verdicts ADD COLUMN code smallint NOT NULL GENERATED ALWAYS AS ({CODE}) STORED"
    )
    _replace_key(f" INCLUDE ({COVERED})")
    # An index is read without the table only where the table was vacuumed: see to it early.
    op.execute("ALTER TABLE verdicts SET (autovacuum_vacuum_insert_scale_factor = 0.02)")
    op.drop_constraint("fk_verdicts_run_model_id_run_models", "verdicts")
    op.drop_constraint("fk_verdicts_sample_key_samples", "verdicts")
    op.execute("""
        CREATE FUNCTION check_verdict_references() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF EXISTS (SELECT FROM inserted WHERE NOT EXISTS (
                SELECT FROM run_models WHERE id = inserted.run_model_id)) THEN
                RAISE foreign_key_violation USING
                    MESSAGE = 'no such model (fk_verdicts_run_model_id_run_models)',
                    CONSTRAINT = 'fk_verdicts_run_model_id_run_models';
            END IF;
            IF EXISTS (SELECT FROM inserted WHERE NOT EXISTS (
                SELECT FROM samples WHERE key = inserted.sample_key)) THEN
                RAISE foreign_key_violation USING
                    MESSAGE = 'no such sample (fk_verdicts_sample_key_samples)',
                    CONSTRAINT = 'fk_verdicts_sample_key_samples';
            END IF;
            RETURN NULL;
        END $$
    """)
    op.execute("""
        CREATE TRIGGER check_references AFTER INSERT ON verdicts REFERENCING NEW TABLE AS inserted
        FOR EACH STATEMENT EXECUTE FUNCTION check_verdict_references()
    """)
    op.execute("""
        CREATE FUNCTION delete_verdicts_of_models() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            DELETE FROM verdicts USING gone WHERE run_model_id = gone.id;
            RETURN NULL;
        END $$
    """)
    op.execute("""
        CREATE TRIGGER delete_verdicts AFTER DELETE ON run_models REFERENCING OLD TABLE AS gone
        FOR EACH STATEMENT EXECUTE FUNCTION delete_verdicts_of_models()
    """)
    op.add_column(
        "snapshots",
        sa.Column("identities", postgresql.JSONB(), server_default=sa.text("'{}'"), nullable=False),
    )


def downgrade() -> None:
    op.drop_column("snapshots", "identities")
    op.execute("DROP TRIGGER delete_verdicts ON run_models")
    op.execute("DROP FUNCTION delete_verdicts_of_models")
    op.execute("DROP TRIGGER check_references ON verdicts")
    op.execute("DROP FUNCTION check_verdict_references")
    op.create_foreign_key(
        "fk_verdicts_sample_key_samples", "verdicts", "samples", ["sample_key"], ["key"]
    )
    op.create_foreign_key(
        "fk_verdicts_run_model_id_run_models",
        "verdicts",
        "run_models",
        ["run_model_id"],
        ["id"],
        ondelete="CASCADE",
    )
    op.execute("ALTER TABLE verdicts RESET (autovacuum_vacuum_insert_scale_factor)")
    _replace_key("")
    op.drop_column("verdicts", "code")
