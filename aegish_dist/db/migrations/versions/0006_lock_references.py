"""Lock the models that verdicts are stored for, and keep the samples of runs.

Old workers may keep running: they write no column that changed. Of the rows that a statement
inserts, the models are locked against deletion until it commits, once per model and not once per
row. Samples are not locked: those of a dataset that a run asks cannot be deleted at all.

Revision ID: 0006
Revises: 0005
"""

from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

LOCK = "PERFORM FROM run_models WHERE id IN (SELECT run_model_id FROM inserted) FOR KEY SHARE;"
CHECK = """
    CREATE OR REPLACE FUNCTION check_verdict_references() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        {lock}
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
"""


def upgrade() -> None:
    op.execute(CHECK.format(lock=LOCK))
    op.execute("""
        CREATE FUNCTION keep_samples_of_runs() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF EXISTS (SELECT FROM gone) THEN
                PERFORM FROM datasets WHERE id IN (SELECT dataset_id FROM gone) FOR UPDATE;
                IF EXISTS (SELECT FROM gone JOIN run_datasets USING (dataset_id)) THEN
                    RAISE foreign_key_violation USING
                        MESSAGE = 'a run asks these samples (fk_verdicts_sample_key_samples)',
                        CONSTRAINT = 'fk_verdicts_sample_key_samples';
                END IF;
            END IF;
            RETURN NULL;
        END $$
    """)
    op.execute("""
        CREATE TRIGGER keep_samples AFTER DELETE ON samples REFERENCING OLD TABLE AS gone
        FOR EACH STATEMENT EXECUTE FUNCTION keep_samples_of_runs()
    """)


def downgrade() -> None:
    op.execute("DROP TRIGGER keep_samples ON samples")
    op.execute("DROP FUNCTION keep_samples_of_runs")
    op.execute(CHECK.format(lock=""))
