"""Take from workers the verdicts of planned items alone, whatever a session's tables are named.

Old workers may keep running: they store no others. Rows that are there stay as they are.

Revision ID: 0003
Revises: 0002
"""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# An import stores its verdicts before its epochs and datasets are known; its role may write runs, and
# so could plan all that it stores. The conditions of the triggers ask for the rights of the role
# that inserts, and hold the table by its number, whatever a session calls by its name. What is
# planned has a model and a sample, so each role has one of the two checks.
_CHECKS = """
CREATE FUNCTION check_verdicts_are_planned() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM run_models WHERE id IN (SELECT run_model_id FROM inserted) FOR KEY SHARE;
    IF EXISTS (
        WITH planning AS MATERIALIZED (
            SELECT model.id, run.epochs, array_agg(asked.dataset_id) AS datasets
            FROM run_models AS model
            JOIN runs AS run ON run.id = model.run_id
            JOIN run_datasets AS asked ON asked.run_id = run.id
            WHERE model.id IN (SELECT run_model_id FROM inserted) AND run.origin = 'submit'
              AND (model.datasets IS NULL OR asked.dataset_id = ANY(model.datasets))
            GROUP BY model.id, run.epochs)
        -- PostgreSQL joins no subqueries that stand for a value: it looks each up by its key, where
        -- it would read a whole table while it knows nothing of it yet.
        SELECT FROM inserted AS verdict
        LEFT JOIN planning ON planning.id = verdict.run_model_id
        WHERE (
            verdict.epoch <= planning.epochs
            AND (SELECT dataset_id FROM samples WHERE key = verdict.sample_key)
                = ANY(planning.datasets)
            AND (verdict.generation = 0 OR (
                SELECT true FROM retried_items
                WHERE run_model_id = verdict.run_model_id AND sample_key = verdict.sample_key
                  AND epoch = verdict.epoch AND generation = verdict.generation))
        ) IS NOT TRUE) THEN
        RAISE check_violation USING
            MESSAGE = 'no run plans this verdict (ck_verdicts_planned)',
            CONSTRAINT = 'ck_verdicts_planned';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER check_planned AFTER INSERT ON verdicts REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT WHEN (NOT has_table_privilege('runs'::regclass, 'INSERT'))
EXECUTE FUNCTION check_verdicts_are_planned();
DROP TRIGGER check_references ON verdicts;
CREATE TRIGGER check_references AFTER INSERT ON verdicts REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT WHEN (has_table_privilege('runs'::regclass, 'INSERT'))
EXECUTE FUNCTION check_verdict_references();

-- Failed calls come in the transaction of their verdict: later ones say nothing about it.
CREATE FUNCTION check_call_errors_are_new() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM inserted
        JOIN verdicts USING (run_model_id, sample_key, epoch, generation)
        WHERE verdicts.stored_at <> now()) THEN
        RAISE check_violation USING
            MESSAGE = 'failed calls of a verdict of before (ck_call_errors_new)',
            CONSTRAINT = 'ck_call_errors_new';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER check_new AFTER INSERT ON call_errors REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT WHEN (NOT has_table_privilege('runs'::regclass, 'INSERT'))
EXECUTE FUNCTION check_call_errors_are_new();
"""

# Else a temporary table of the session, or one of another schema, would stand for that of its name.
_NAMES = """
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'check_verdict_references', 'check_verdicts_are_planned', 'check_call_errors_are_new',
        'delete_verdicts_of_models', 'keep_samples_of_runs', 'announce_runs'
    ] LOOP
        EXECUTE format(
            'ALTER FUNCTION %%I() SET search_path = %%I, pg_temp', name, current_schema());
    END LOOP;
END $$;
"""

_BEFORE = """
DROP TRIGGER check_planned ON verdicts;
DROP TRIGGER check_new ON call_errors;
DROP FUNCTION check_verdicts_are_planned, check_call_errors_are_new;
DROP TRIGGER check_references ON verdicts;
CREATE TRIGGER check_references AFTER INSERT ON verdicts REFERENCING NEW TABLE AS inserted
FOR EACH STATEMENT EXECUTE FUNCTION check_verdict_references();
ALTER FUNCTION check_verdict_references() RESET search_path;
ALTER FUNCTION delete_verdicts_of_models() RESET search_path;
ALTER FUNCTION keep_samples_of_runs() RESET search_path;
ALTER FUNCTION announce_runs() RESET search_path;
"""


def upgrade() -> None:
    # By the driver: SQLAlchemy would read a colon as the beginning of a parameter.
    op.get_bind().exec_driver_sql(_CHECKS)
    op.get_bind().exec_driver_sql(_NAMES)


def downgrade() -> None:
    op.get_bind().exec_driver_sql(_BEFORE)
