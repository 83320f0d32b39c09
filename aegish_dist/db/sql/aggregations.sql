-- The aggregations of complete runs: `db.missing` reads and writes these.

-- fragment: completion
-- Which completion of `run` its plan leads to: the number of its items, and its last retry. A run
-- that is extended or retried completes once more; one that is resumed does not.
(SELECT sum(dataset.samples) * run.epochs
 FROM run_models AS model
 JOIN run_datasets AS asked ON asked.run_id = model.run_id
 JOIN datasets AS dataset ON dataset.id = asked.dataset_id
 WHERE model.run_id = run.id
   AND (model.datasets IS NULL OR asked.dataset_id = ANY(model.datasets)))
|| '/' || (SELECT coalesce(max(generation), 0) FROM retries WHERE run_id = run.id)

-- name: release_completed
-- Releases those of `:runs` that were held when they lacked nothing any more: calls that were in
-- flight have brought their last verdicts.
UPDATE runs SET held = NULL
WHERE id = ANY(:runs) AND held IS NOT NULL
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

-- name: may_aggregate
-- Whether the role of this session may store what an aggregation makes.
SELECT has_table_privilege('snapshots', 'INSERT')

-- name: take_due_aggregations
-- Marks as enqueued, and returns, the aggregations that were never enqueued, and those that were
-- but are unfinished `:lost_after_s` seconds later (null: none of these). One that is being made is
-- locked, and left out.
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
SELECT aggregation.finished_at IS NOT NULL AS finished,
       aggregation.snapshot_ids[cardinality(aggregation.snapshot_ids)] AS snapshot_id,
       aggregation.problem
FROM aggregations AS aggregation JOIN runs AS run ON run.id = aggregation.run_id
WHERE run.id = :run AND aggregation.completion = {completion}
ORDER BY aggregation.id DESC LIMIT 1

-- name: unfinished_aggregations
-- The aggregations of the run `:run` that are not finished, oldest first.
SELECT id FROM aggregations WHERE run_id = :run AND finished_at IS NULL ORDER BY id

-- name: finish_aggregation
-- Writes down what came of the aggregation `:id`; one that is finished stays as it is.
UPDATE aggregations SET finished_at = now(), snapshot_ids = :snapshots, problem = :problem
WHERE id = :id AND finished_at IS NULL
