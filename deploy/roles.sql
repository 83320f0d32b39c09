-- Two roles with rights on data, none on the schema. Run by the owner; may be run again at any time.
--
-- aegish_app: commands and the aggregator, which may also re-read and delete verdicts. Password in
--   AEGISH_DIST_APP_PASSWORD.
-- aegish_worker: workers, which add verdicts of planned items. They can neither change nor remove a
--   verdict, nor what it is about, nor write a score. Password in AEGISH_DIST_WORKER_PASSWORD;
--   without it nobody can log in as this role.
\getenv password AEGISH_DIST_APP_PASSWORD
\getenv worker_password AEGISH_DIST_WORKER_PASSWORD
-- In one transaction, so that workers which run meanwhile miss no right.
BEGIN;
SELECT format('CREATE ROLE %I', name) FROM unnest(ARRAY['aegish_app', 'aegish_worker']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
ALTER ROLE aegish_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS
    PASSWORD :'password';
ALTER ROLE aegish_worker NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
\if :{?worker_password}
ALTER ROLE aegish_worker LOGIN PASSWORD :'worker_password';
\endif

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
-- A temporary table or function is one that its session names before those of the schema. Who does
-- not own the database cannot take this right away.
SELECT format('REVOKE TEMPORARY ON DATABASE %1$I FROM PUBLIC;
    GRANT TEMPORARY ON DATABASE %1$I TO aegish_app', datname)
FROM pg_database WHERE datname = current_database() AND pg_has_role(datdba, 'USAGE') \gexec
GRANT USAGE ON SCHEMA public TO aegish_app, aegish_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO aegish_app;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO aegish_app;
-- Earlier versions of this file gave workers more.
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM aegish_worker;
REVOKE ALL ON ALL SEQUENCES IN SCHEMA public FROM aegish_worker;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO aegish_worker;
-- What workers write, once the first migration has made it.
SELECT format('GRANT %s ON %I TO aegish_worker', rights, name)
FROM (VALUES
    ('verdicts', 'INSERT'),
    ('call_errors', 'INSERT'),
    ('reading_deaths', 'INSERT (run_model_id, sample_key, epoch, generation, worker)'),
    ('runs', 'UPDATE (held)'),
    ('run_models', 'UPDATE (open)'),
    ('aggregations', 'INSERT (run_id, completion, scoring), UPDATE (enqueued_at)'),
    ('batches', 'INSERT (run_model_id, token, state, requests, expected_usd),
        UPDATE (state, expected_usd, creating_at, submitted_at, ended_at, cancelled_at, due_at, worker,
            failures, provider_name, adopted, refused_names, counts, problem)'),
    ('batched_items', 'INSERT (run_model_id, sample_key, epoch, generation, batch_id),
        UPDATE (batch_id, tries, live, problem), DELETE'),
    ('workers', 'INSERT, UPDATE, DELETE')
) AS written (name, rights)
WHERE to_regclass(name) IS NOT NULL \gexec
-- Migrations alone write their version. Before the first one the table is absent.
SELECT 'REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM aegish_app'
WHERE to_regclass('alembic_version') IS NOT NULL \gexec
-- For what later migrations make: what workers write of it is named above.
ALTER DEFAULT PRIVILEGES IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO aegish_app;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO aegish_app;
ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON TABLES FROM aegish_worker;
ALTER DEFAULT PRIVILEGES IN SCHEMA public REVOKE ALL ON SEQUENCES FROM aegish_worker;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO aegish_worker;
COMMIT;
