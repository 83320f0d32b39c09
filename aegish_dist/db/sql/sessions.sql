-- The session that counts (`db.runs`), and those that are in the way of a migration
-- (`db.schema`).

-- name: any_retry
-- Whether any verdict of the run `:run` came from a retry.
SELECT EXISTS (
    SELECT FROM verdicts JOIN run_models AS model ON model.id = verdicts.run_model_id
    WHERE model.run_id = :run AND verdicts.generation > 0) AS retried

-- name: settings_for_counting
-- Settings of this transaction alone. Sorts of a million numbers fit into the memory. Verdicts and
-- samples both come in the order of their keys, so merging them takes half the time of hashing a
-- million samples.
SELECT set_config('jit', 'off', true) AS jit,
       set_config('max_parallel_workers_per_gather', '0', true) AS parallel_workers,
       set_config('work_mem', '64MB', true) AS memory,
       set_config('enable_hashjoin', 'off', true) AS hash_join,
       set_config('plan_cache_mode', 'force_custom_plan', true) AS plans

-- name: sessions_in_the_way
-- Sessions that hold the advisory lock `:key` or any table of this schema, the oldest first.
SELECT pid, usename, application_name, client_addr, state, xact_start
FROM pg_stat_activity
WHERE pid IN (
    SELECT pid FROM pg_locks AS held
    WHERE granted AND pid <> pg_backend_pid()
      AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
      AND (relation IN (SELECT oid FROM pg_class
                        WHERE relnamespace = current_schema()::regnamespace)
           OR (locktype = 'advisory' AND objsubid = 1
               AND (classid::bigint << 32) + objid::bigint = :key)))
ORDER BY xact_start LIMIT 3
