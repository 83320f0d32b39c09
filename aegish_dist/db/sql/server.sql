-- The state of the database's server and of the workers, for `doctor --fleet`: `db.fleet` and
-- `pipeline.doctor` use these. Each takes milliseconds however large the tables are.

-- name: report_worker
-- Writes down that the worker `:name` runs, what it holds, and its versions and its clock.
INSERT INTO workers (name, in_flight, seen_at, about)
VALUES (:name, CAST(:in_flight AS jsonb), now(), CAST(:about AS jsonb))
ON CONFLICT (name) DO UPDATE
SET in_flight = excluded.in_flight, seen_at = excluded.seen_at, about = excluded.about

-- name: forget_worker
-- Deletes the report of the worker `:name`, and those older than `:forget_s` seconds.
DELETE FROM workers
WHERE name = :name OR seen_at < now() - make_interval(secs => :forget_s)

-- name: living_workers
-- The reports of the last `:alive_s` seconds and their age in seconds.
SELECT in_flight, about ->> 'version' AS version, seen_at, extract(epoch FROM now() - seen_at)::float8 AS age_s
FROM workers
WHERE seen_at BETWEEN now() - make_interval(secs => :alive_s) AND now() + interval '1 s'

-- name: reported_workers
-- The living workers with their versions, and by how many seconds their clocks were ahead of this
-- server's when they reported; null where they did not say.
SELECT name, about ->> 'version' AS version, about ->> 'schema' AS schema,
       extract(epoch FROM CAST(about ->> 'clock' AS timestamptz) - seen_at)::float8 AS ahead_s
FROM workers
WHERE seen_at BETWEEN now() - make_interval(secs => :alive_s) AND now() + interval '1 s'
ORDER BY name

-- name: database_facts
-- One row: the clock, limits and settings of the server, and the state of this database. A few rows
-- that are to be vacuumed do not matter.
SELECT now() AS clock, current_setting('server_version') AS version,
       current_setting('max_connections')::int AS max_connections,
       (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS connections,
       pg_size_bytes(current_setting('shared_buffers')) AS shared_buffers,
       pg_size_bytes(current_setting('max_wal_size')) AS max_wal_size,
       pg_database_size(current_database()) AS size,
       pg_total_relation_size('verdicts') AS verdicts_size,
       current_setting('autovacuum')::bool AS autovacuum,
       current_setting('fsync')::bool AND current_setting('full_page_writes')::bool
         AND current_setting('synchronous_commit') <> 'off' AS durable,
       age(datfrozenxid) AS transactions, mxid_age(datminmxid) AS row_locks,
       coalesce((SELECT extract(epoch FROM now() - min(xact_start))::float8 FROM pg_stat_activity
                 WHERE datname = current_database()), 0) AS oldest_s,
       (SELECT last_failed_time > coalesce(last_archived_time, '-infinity')
        FROM pg_stat_archiver) IS TRUE AS archiving_fails,
       CASE WHEN pg_is_in_recovery() THEN 0 ELSE coalesce((
           SELECT max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn))::bigint
           FROM pg_replication_slots WHERE NOT active), 0) END AS kept_wal,
       coalesce((SELECT n_dead_tup::float8 / greatest(n_live_tup + n_dead_tup, 1)
                 FROM pg_stat_user_tables
                 WHERE relid = 'verdicts'::regclass AND n_dead_tup > 100000), 0) AS dead_share
FROM pg_database
WHERE datname = current_database()
