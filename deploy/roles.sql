-- Two roles with rights on data, none on the schema. Run by the owner; may be run again at any time.
--
-- aegish_app: commands, which may also re-read and delete verdicts. Password in
--   AEGISH_DIST_APP_PASSWORD.
-- aegish_worker: workers, which add verdicts and can neither change nor remove one, nor what it is
--   about. Password in AEGISH_DIST_WORKER_PASSWORD; without it nobody can log in as this role.
\getenv password AEGISH_DIST_APP_PASSWORD
\getenv worker_password AEGISH_DIST_WORKER_PASSWORD
SELECT format('CREATE ROLE %I', name) FROM unnest(ARRAY['aegish_app', 'aegish_worker']) AS name
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = name) \gexec
ALTER ROLE aegish_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS
    PASSWORD :'password';
ALTER ROLE aegish_worker NOLOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
\if :{?worker_password}
ALTER ROLE aegish_worker LOGIN PASSWORD :'worker_password';
\endif

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO aegish_app, aegish_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO aegish_app, aegish_worker;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO aegish_app, aegish_worker;
-- Migrations alone write their version. Before the first one the table is absent.
SELECT 'REVOKE INSERT, UPDATE, DELETE ON alembic_version FROM aegish_app, aegish_worker'
WHERE to_regclass('alembic_version') IS NOT NULL \gexec
-- Deleting a run deletes its verdicts by right of the owner; other labels make others of them.
SELECT 'REVOKE UPDATE, DELETE ON verdicts FROM aegish_worker;
    REVOKE INSERT, UPDATE, DELETE ON runs, run_models, run_datasets, datasets, samples, prompts,
        retries, retried_items FROM aegish_worker;
    GRANT UPDATE (held) ON runs TO aegish_worker;
    GRANT UPDATE (open) ON run_models TO aegish_worker'
WHERE to_regclass('verdicts') IS NOT NULL \gexec
-- For what later migrations make.
ALTER DEFAULT PRIVILEGES IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO aegish_app, aegish_worker;
ALTER DEFAULT PRIVILEGES IN SCHEMA public
    GRANT USAGE, SELECT ON SEQUENCES TO aegish_app, aegish_worker;
