-- Runs on their way to an archive and back: `db.archive` uses these.

-- fragment: models_of_run
-- Keys of the models of the run `:run`.
SELECT id FROM run_models WHERE run_id = :run

-- fragment: datasets_of_run
-- Keys of the datasets of the run `:run`.
SELECT dataset_id FROM run_datasets WHERE run_id = :run

-- name: stored_columns
-- Names and types of the columns of the table `:table`, in order, without those that it computes.
SELECT attname AS name, format_type(atttypid, NULL) AS type
FROM pg_attribute
WHERE attrelid = to_regclass(:table) AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
ORDER BY attnum

-- name: open_batches
-- How many batches of the run `:run` a provider may still answer.
SELECT count(*) FROM batches
WHERE run_model_id IN ({models_of_run}) AND state <> 'ended'

-- name: settings_for_archives
-- Settings of this transaction alone: under them a row has one text.
SELECT set_config('timezone', 'UTC', true) AS zone, set_config('datestyle', 'ISO', true) AS dates,
       set_config('intervalstyle', 'postgres', true) AS intervals,
       set_config('extra_float_digits', '1', true) AS digits,
       set_config('work_mem', '64MB', true) AS memory

-- name: create_new_keys
-- A table of this transaction: by kind the keys of an archive and those in this store, and whether
-- the row has to be added.
CREATE TEMP TABLE new_keys (
    kind text, old bigint, new bigint, is_new boolean, PRIMARY KEY (kind, old)
) ON COMMIT DROP

-- name: completions_to_restore
-- Puts completions of the archived verdicts back where they were deleted and the answer is the same
-- one. What `reparse` read in it since then may be another: the text is not.
UPDATE verdicts AS verdict SET completion = old.completion
FROM archived_verdicts AS old
WHERE old.completion IS NOT NULL AND {pruned}
  AND verdict.run_model_id = old.run_model_id AND verdict.sample_key = old.sample_key
  AND verdict.epoch = old.epoch AND verdict.generation = old.generation
  AND verdict.request_id IS NOT DISTINCT FROM old.request_id
  AND verdict.stored_at = old.stored_at

-- name: same_keys
-- Whether models and samples of the archive have the same keys in this store.
SELECT NOT EXISTS (
    SELECT FROM archived_run_models AS old LEFT JOIN run_models AS model
        ON model.id = old.id AND model.run_id = old.run_id AND model.model = old.model
    WHERE model.id IS NULL
) AND NOT EXISTS (
    SELECT FROM archived_samples AS old LEFT JOIN samples AS sample
        ON sample.key = old.key AND sample.sample_id = old.sample_id
    WHERE sample.key IS NULL)

-- name: count_restored
-- Writes down that `:completions` of the run `:run` are back.
UPDATE runs
SET pruned_completions = pruned_completions - :completions,
    pruned_at = CASE WHEN pruned_completions > :completions THEN pruned_at END
WHERE id = :run
