-- Deleting runs: `db.deletion` and `db.verdicts` use these.

-- name: size_of_run
-- One row: how many models, verdicts and snapshots the run `:run` has.
SELECT count(*) AS models,
       coalesce(sum((SELECT count(*) FROM verdicts WHERE run_model_id = model.id)), 0)::bigint
           AS verdicts,
       (SELECT count(*) FROM snapshots WHERE run_id = :run) AS snapshots
FROM run_models AS model WHERE model.run_id = :run

-- name: models_of_run
-- The keys of the models of the run `:run`, in order.
SELECT id FROM run_models WHERE run_id = :run ORDER BY id

-- name: delete_verdicts
-- Deletes the verdicts of the model `:model` about samples behind the key `:after` up to `:through`.
DELETE FROM verdicts
WHERE run_model_id = :model AND sample_key > :after AND sample_key <= :through

-- name: lock_models_of_run
-- Locks the models of the run `:run`.
SELECT id FROM run_models WHERE run_id = :run ORDER BY id FOR UPDATE

-- name: delete_aggregations
-- Deletes the aggregations of the run `:run`; waits for one that is being made.
DELETE FROM aggregations WHERE run_id = :run

-- fragment: prompts_of_run
-- Keys of the prompts of the run `:run` and of its models.
SELECT prompt_id FROM runs WHERE id = :run AND prompt_id IS NOT NULL
UNION SELECT prompt_id FROM run_models WHERE run_id = :run AND prompt_id IS NOT NULL

-- name: shared_rows_of_run
-- One row: the keys of the prompts and of the datasets of the run `:run`.
SELECT ARRAY({prompts_of_run}) AS prompts,
       ARRAY(SELECT dataset_id FROM run_datasets WHERE run_id = :run) AS datasets

-- name: delete_run
-- Deletes the run `:run` with all rows that belong to it alone.
DELETE FROM runs WHERE id = :run

-- name: delete_unused_datasets
-- Deletes those of `:datasets` that no user imported and no run asks.
DELETE FROM datasets
WHERE id = ANY(:datasets) AND NOT selectable AND id NOT IN (SELECT dataset_id FROM run_datasets)

-- name: delete_unused_prompts
-- Deletes those of `:prompts` that no run and no model of one has.
DELETE FROM prompts AS prompt
WHERE id = ANY(:prompts) AND NOT EXISTS (SELECT FROM runs WHERE prompt_id = prompt.id)
  AND NOT EXISTS (SELECT FROM run_models WHERE prompt_id = prompt.id)

-- name: old_runs
-- The runs made before `:before`, oldest first, without the `:keep` newest of all runs.
SELECT id FROM runs
WHERE created_at < :before
  AND id NOT IN (SELECT id FROM runs ORDER BY created_at DESC, id DESC LIMIT :keep)
ORDER BY created_at

-- name: last_of_batch
-- The key of the last sample among the next `:limit` verdicts of the model `:model` about samples
-- after the key `:after`; null when there are none.
SELECT max(sample_key) FROM (
    SELECT sample_key FROM verdicts
    WHERE run_model_id = :model AND sample_key > :after
    ORDER BY sample_key LIMIT :limit) AS batch
