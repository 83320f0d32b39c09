-- Runs on their way to an archive and back: `db.verdicts` and `pipeline.archives` use these.

-- name: settings_for_archives
-- Settings of this transaction alone: under them a row has one text.
SELECT set_config('timezone', 'UTC', true) AS zone,
       set_config('extra_float_digits', '1', true) AS digits,
       set_config('work_mem', '64MB', true) AS memory

-- name: snapshots_as_json
-- The snapshots of the run `:run`, oldest first, each as one line of JSON.
SELECT to_jsonb(snapshots)::text FROM snapshots WHERE run_id = :run ORDER BY id

-- name: close_models
-- Has no worker listen to the queues of the run `:run`.
UPDATE run_models SET open = false WHERE run_id = :run

-- name: release_complete
-- Has the run `:run` not held that lacks nothing.
UPDATE runs SET held = NULL
WHERE id = :run AND held = 'paused' AND NOT EXISTS ({missing_first_tries})

-- name: put_completions_back
-- Puts the completions in the JSON list `:rows` back where that text was deleted. What `reparse`
-- read in it since then may be another: the text is not.
UPDATE verdicts AS verdict SET completion = archived.completion, completion_sha256 = NULL
FROM json_populate_recordset(NULL::verdicts, CAST(:rows AS json)) AS archived
WHERE verdict.run_model_id = archived.run_model_id AND verdict.sample_key = archived.sample_key
  AND verdict.epoch = archived.epoch AND verdict.generation = archived.generation
  AND verdict.completion_sha256 = sha256(convert_to(archived.completion, 'UTF8'))

-- name: count_restored
-- Writes down that `:completions` of the run `:run` are back.
UPDATE runs
SET pruned_completions = pruned_completions - :completions,
    pruned_at = CASE WHEN pruned_completions > :completions THEN pruned_at END
WHERE id = :run
