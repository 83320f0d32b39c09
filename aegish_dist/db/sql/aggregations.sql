-- The aggregations of complete runs: `db.aggregations` reads and writes these.

-- fragment: completion
-- Which completion of `run` its plan leads to: the number of its items, and its last retry. A run
-- that is extended or retried completes once more; one that is resumed does not. A decided run has
-- ended before.
CASE WHEN run.held = 'decided' THEN 'decided ' || coalesce(run.decision ->> 'read_at', '') ELSE
(SELECT sum(dataset.samples) * run.epochs
 FROM run_models AS model
 JOIN run_datasets AS asked ON asked.run_id = model.run_id
 JOIN datasets AS dataset ON dataset.id = asked.dataset_id
 WHERE model.run_id = run.id
   AND (model.datasets IS NULL OR asked.dataset_id = ANY(model.datasets)))
|| '/' || (SELECT coalesce(max(generation), 0) FROM retries WHERE run_id = run.id)
END

-- name: release_completed
-- Releases those of `:runs` that were held when they lacked nothing any more: calls that were in
-- flight have brought their last verdicts. A stop rule closes models that lack some.
UPDATE runs SET held = NULL
WHERE id = ANY(:runs) AND held IN ('paused', 'cancelled') AND stop_rule IS NULL
  AND NOT EXISTS (SELECT FROM run_models AS other WHERE other.run_id = runs.id AND other.open)

-- name: request_of_completed
-- Asks for one aggregation of each of `:runs` that has completed: it is not held, and none of its
-- models is open.
INSERT INTO aggregations (run_id, completion, scoring)
SELECT run.id, {completion}, :scoring
FROM runs AS run
WHERE run.id = ANY(:runs) AND run.held IS NULL
  AND NOT EXISTS (SELECT FROM run_models AS other WHERE other.run_id = run.id AND other.open)
ON CONFLICT (run_id, completion) DO NOTHING

-- name: request_of_decided
-- Asks for one aggregation of each run that its stop rule has ended, once no worker has reported an
-- item of it for `:settled_s` seconds: calls in flight are part of it. It also ends a run by stopping
-- the last model that was asked, although a question between models that were is open.
INSERT INTO aggregations (run_id, completion, scoring)
SELECT run.id, {completion}, run.stop_rule ->> 'scoring'
FROM runs AS run
WHERE run.stop_rule IS NOT NULL
  AND (run.held = 'decided' OR run.held IS NULL AND jsonb_array_length(run.decision -> 'stopped') > 0
       AND NOT EXISTS (SELECT FROM run_models AS other WHERE other.run_id = run.id AND other.open))
  AND (run.decision ->> 'read_at')::timestamptz <= now() - make_interval(secs => :settled_s)
  AND NOT EXISTS (
    SELECT FROM aggregations WHERE run_id = run.id AND completion = {completion})
  AND NOT EXISTS (
    SELECT FROM workers AS worker CROSS JOIN jsonb_array_elements(worker.in_flight) AS held (item)
    WHERE worker.seen_at > now() - interval '10 s'
      AND held.item ->> 'run' = run.id AND (held.item ->> 'items')::int > 0)
ON CONFLICT (run_id, completion) DO NOTHING

-- name: take_due_aggregations
-- Marks as enqueued, and returns, the aggregations that were never enqueued, and those that were
-- but are unfinished `:lost_after_s` seconds later. One that is being made is locked, and left out.
UPDATE aggregations SET enqueued_at = now()
WHERE id IN (
    SELECT id FROM aggregations
    WHERE finished_at IS NULL
      AND (enqueued_at IS NULL OR enqueued_at < now() - make_interval(secs => :lost_after_s))
    ORDER BY id
    FOR UPDATE SKIP LOCKED)
RETURNING id

-- name: claim_aggregation
-- The aggregation `:id`, locked until the end of the transaction; no row when it is finished, or
-- another transaction has locked it.
SELECT run_id, scoring FROM aggregations
WHERE id = :id AND finished_at IS NULL
FOR UPDATE SKIP LOCKED

-- name: is_unfinished
-- Whether the aggregation `:id` exists and is not finished.
SELECT EXISTS (SELECT FROM aggregations WHERE id = :id AND finished_at IS NULL)

-- name: newest_aggregation
-- The newest aggregation that the completion of the present plan of the run `:run` asked for.
SELECT aggregation.id, aggregation.finished_at IS NOT NULL AS finished,
       aggregation.snapshot_ids, aggregation.problem
FROM aggregations AS aggregation JOIN runs AS run ON run.id = aggregation.run_id
WHERE run.id = :run AND aggregation.completion = {completion}
ORDER BY aggregation.id DESC LIMIT 1
