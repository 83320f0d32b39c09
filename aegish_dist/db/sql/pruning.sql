-- Completions that are deleted while their verdicts stay: `db.deletion`,
-- `db.batches`, `db.missing` and `db.verdict_reader` use this.

-- fragment: pruned
-- Condition that the completion of `verdict` was deleted: it was read, so there was one. A call
-- without an answer, and an empty answer, have none to delete.
verdict.completion IS NULL AND verdict.outcome IN ('ALLOW', 'WARN', 'BLOCK', 'FORMAT_ERROR')

-- fragment: prunable
-- Condition that `verdict` has a completion that was read.
verdict.completion IS NOT NULL AND verdict.outcome IN ('ALLOW', 'WARN', 'BLOCK', 'FORMAT_ERROR')

-- name: size_of_completions
-- One row: the completions of the run `:run` that can be deleted, their bytes on disk, and when that
-- was counted.
SELECT count(*) AS completions, coalesce(sum(pg_column_size(completion)), 0)::bigint AS bytes,
       now() AS counted_at
FROM verdicts AS verdict JOIN run_models AS model ON model.id = verdict.run_model_id
WHERE model.run_id = :run AND {prunable}

-- name: lock_run
-- Locks the run `:run`, as deleting it does before it touches verdicts, and has others that plan its
-- batches wait; no row when it is gone.
SELECT id FROM runs WHERE id = :run FOR NO KEY UPDATE

-- name: prune_completions
-- Deletes the completions of the model `:model` about samples behind the key `:after` up to the key
-- `:through`, where they were stored before `:before`: what came later was neither counted nor
-- archived. `code` is computed from columns that stay.
UPDATE verdicts AS verdict
SET completion = NULL, completion_sha256 = sha256(convert_to(completion, 'UTF8'))
WHERE verdict.run_model_id = :model
  AND verdict.sample_key > :after AND verdict.sample_key <= :through
  AND verdict.stored_at < :before AND {prunable}

-- name: count_pruned
-- Writes down that `:completions` more of the run `:run` were deleted.
UPDATE runs SET pruned_completions = pruned_completions + :completions, pruned_at = now()
WHERE id = :run
