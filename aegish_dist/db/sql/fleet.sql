-- State of a fleet for its exporter: `db.fleet` reads these every few seconds. None of them reads
-- verdicts, except the last pages of their table and `count_open_model`.

-- name: fleet_runs
-- The `:limit` newest runs that have an open model, held runs after all others: whether the run is
-- held, when it was made, the items of a model, the cap on the cost, the keys of all its models, and
-- its open ones with their queues.
WITH asked AS (
    SELECT run.*
    FROM runs AS run
    WHERE run.id IN (SELECT run_id FROM run_models WHERE open)
    ORDER BY run.held IS NOT NULL, run.created_at DESC
    LIMIT :limit)
SELECT run.id AS run_id, run.held IS NOT NULL AS held, run.created_at,
       CASE WHEN run.parameters ->> 'max_cost_usd' ~ '^[0-9]{1,13}(\.[0-9]{1,99})?([eE]-?[0-9]{1,2})?$'
            THEN (run.parameters ->> 'max_cost_usd')::float8 END AS cap_usd,
       run.epochs * (
           SELECT coalesce(sum(dataset.samples), 0)
           FROM run_datasets AS chosen JOIN datasets AS dataset ON dataset.id = chosen.dataset_id
           WHERE chosen.run_id = run.id)::bigint AS planned_per_model,
       array_agg(model.id ORDER BY model.id) AS models,
       jsonb_agg(jsonb_build_object('key', model.id, 'model', model.model, 'queue', model.queue)
                 ORDER BY model.id) FILTER (WHERE model.open) AS opened
FROM asked AS run JOIN run_models AS model ON model.run_id = run.id
GROUP BY run.id, run.held, run.created_at, run.parameters, run.epochs
ORDER BY run.created_at DESC, run.id

-- name: fleet_aggregations
-- How many aggregations are not finished, and the age of the oldest in seconds (null without any).
SELECT count(*) AS due, extract(epoch FROM now() - min(requested_at))::float8 AS oldest_s
FROM aggregations WHERE finished_at IS NULL

-- name: fleet_batches
-- Batches that are not ended by model and state, their requests, the age of the oldest, and the
-- longest time for which one has been handed over; seconds.
SELECT model.model, batch.state, count(*) AS batches, sum(batch.requests) AS requests,
       extract(epoch FROM now() - min(batch.created_at))::float8 AS oldest_s,
       extract(epoch FROM now() - min(batch.creating_at))::float8 AS creating_s
FROM batches AS batch JOIN run_models AS model ON model.id = batch.run_model_id
WHERE batch.state <> 'ended'
GROUP BY model.model, batch.state

-- name: fleet_tables
-- Bytes with indexes, rows that wait for vacuum, and rows ever inserted, of each table.
SELECT relname AS name, pg_total_relation_size(relid) AS bytes, n_dead_tup AS dead_rows,
       n_tup_ins AS inserted
FROM pg_stat_user_tables WHERE schemaname = current_schema()
ORDER BY relname

-- name: fleet_connections
-- Connections of clients to the server, and how many it takes.
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend') AS used,
       current_setting('max_connections')::int AS most

-- name: fleet_newest_verdict
-- Age in seconds of the newest verdict in the last `:pages` pages of its table, where new rows go
-- unless deleted ones have left room elsewhere; null when there is none.
SELECT extract(epoch FROM now() - max(stored_at))::float8 AS age_s FROM verdicts
WHERE ctid >= (
    SELECT format('(%s,0)', greatest(0, pg_relation_size('verdicts')
                                        / current_setting('block_size')::bigint - :pages))::tid)

-- name: count_open_model
-- First tries of the model `:model` that have a verdict, and the cost of all of its verdicts (null
-- without any), from the primary key's index alone.
SELECT count(*) FILTER (WHERE generation = 0) AS done, sum(cost_usd)::float8 AS cost_usd
FROM verdicts WHERE run_model_id = :model
