-- The role of workers and commands: rights on data, none on the schema. Run by the owner, with the
-- role's password in AEGISH_DIST_APP_PASSWORD; may be run again at any time.
\getenv password AEGISH_DIST_APP_PASSWORD
SELECT 'CREATE ROLE aegish_app' WHERE NOT EXISTS (
    SELECT FROM pg_roles WHERE rolname = 'aegish_app') \gexec
ALTER ROLE aegish_app LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS
    PASSWORD :'password';

REVOKE CREATE ON SCHEMA public FROM PUBLIC;
GRANT USAGE ON SCHEMA public TO aegish_app;
GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO aegish_app;
GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO aegish_app;
-- For what later migrations make.
ALTER DEFAULT PRIVILEGES IN SCHEMA public
    GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO aegish_app;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT USAGE, SELECT ON SEQUENCES TO aegish_app;
