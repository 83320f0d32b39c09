-- Gives the database to the role of commands and workers, which has no right beside it, and closes
-- that of the superuser. It may be repeated; its password is set in the same transaction.

-- More iterations slow down the guessing of weak passwords, and each connection.
SET scram_iterations = 1;
DO $$
DECLARE
    change text;
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'aegish') THEN
        CREATE ROLE aegish;
    END IF;
    -- Of a store that an earlier version made, in which the superuser owns everything. A sequence
    -- of a column changes with its table, and not by itself.
    FOR change IN
        SELECT format('ALTER TABLE %s OWNER TO aegish', oid::regclass) FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
        ORDER BY relkind = 'S'
    LOOP
        EXECUTE change;
    END LOOP;
    FOR change IN
        SELECT format('ALTER ROUTINE %s OWNER TO aegish', oid::regprocedure) FROM pg_proc
        WHERE pronamespace = 'public'::regnamespace
        UNION ALL
        SELECT format('ALTER TYPE %s OWNER TO aegish', oid::regtype) FROM pg_type
        WHERE typnamespace = 'public'::regnamespace AND typtype IN ('d', 'e', 'r')
    LOOP
        EXECUTE change;
    END LOOP;
END $$;
ALTER DATABASE postgres OWNER TO aegish;
ALTER ROLE postgres NOLOGIN;
ALTER ROLE aegish LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION NOBYPASSRLS;
