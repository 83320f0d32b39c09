-- Runs on their way to an archive and back: `db.archive` uses these.

-- fragment: models_of_run
-- Keys of the models of the run `:run`.
SELECT id FROM run_models WHERE run_id = :run

-- fragment: datasets_of_run
-- Keys of the datasets of the run `:run`.
SELECT dataset_id FROM run_datasets WHERE run_id = :run

-- fragment: prompts_of_run
-- Keys of the prompts of the run `:run` and of its models.
SELECT prompt_id FROM runs WHERE id = :run AND prompt_id IS NOT NULL
UNION SELECT prompt_id FROM run_models WHERE run_id = :run AND prompt_id IS NOT NULL

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

-- fragment: content_id
-- The id that `core.sample` gives the content of the sample `old`.
left(encode(sha256(
    convert_to(old.target, 'UTF8') || '\x00' || convert_to(coalesce(old.category, ''), 'UTF8')
    || '\x00' || convert_to(coalesce(old.cluster, ''), 'UTF8')
    || '\x00' || convert_to(old.command, 'UTF8')), 'hex'), 16)

-- name: forged_samples
-- The first staged sample that is not what its id says, that the store has with another content, or
-- that would be new in a dataset of the store.
SELECT 'sample ' || old.sample_id || CASE
    WHEN NOT named.right_id THEN ' has another content than its id says'
    WHEN known.key IS NULL THEN ' is not in the dataset of this store that it is said to be of'
    ELSE ' is another one in this store' END
FROM archived_samples AS old
JOIN new_keys AS dataset ON dataset.kind = 'datasets' AND dataset.old = old.dataset_id
CROSS JOIN LATERAL (SELECT old.sample_id = {content_id} AS right_id) AS named
LEFT JOIN samples AS known ON known.dataset_id = dataset.new AND known.sample_id = old.sample_id
WHERE NOT named.right_id OR NOT dataset.is_new AND (
    (known.command, known.target, known.category, known.cluster)
    IS DISTINCT FROM (old.command, old.target, old.category, old.cluster))
LIMIT 1

-- name: forged_runs
-- Where a staged run claims a time or a name by which it would stand for others. Imports may share
-- a name.
SELECT CASE
    WHEN old.created_at > now() THEN 'the run is of the future, ' || old.created_at
    ELSE 'another run has the name ' || quote_literal(other.name)
         || ' by now: `aegish-dist runs rename` that one first' END
FROM archived_runs AS old LEFT JOIN runs AS other
  ON other.name = old.id OR other.id = old.name OR old.name <> '' AND other.name = old.name
     AND 'submit' IN (old.origin, other.origin)
WHERE old.created_at > now() OR other.id IS NOT NULL
LIMIT 1

-- name: forged_run_datasets
-- The first dataset of the archive that the run does not ask, or whose samples are not those of its
-- fingerprint, as `core.sample` computes it, and of its numbers.
SELECT 'dataset ' || quote_literal(dataset.name) || ' has other samples than its fingerprint says'
FROM new_keys AS added JOIN datasets AS dataset ON dataset.id = added.new
LEFT JOIN archived_run_datasets AS asked ON asked.dataset_id = added.old
CROSS JOIN LATERAL (
    SELECT count(*) AS samples, count(*) FILTER (WHERE target = 'malicious') AS malicious,
           encode(sha256(convert_to(string_agg(sample_id, chr(10) ORDER BY sample_id COLLATE "C"),
                                    'UTF8')), 'hex') AS fingerprint
    FROM samples WHERE dataset_id = dataset.id) AS content
WHERE added.kind = 'datasets' AND (
    asked.dataset_id IS NULL
    OR (content.fingerprint, content.samples, content.malicious)
       IS DISTINCT FROM (dataset.fingerprint, dataset.samples, dataset.malicious))
LIMIT 1

-- name: staged_prompts
-- The prompts of the archive.
SELECT name, system, template, fingerprint FROM archived_prompts

-- name: forged_run_models
-- The first staged model that is stored under another name. Its queue is checked by the table.
SELECT 'model ' || quote_literal(model) || ' is stored under another name'
FROM archived_run_models
WHERE spec ->> 'id' IS DISTINCT FROM model
LIMIT 1

-- name: forged_batches
-- A staged batch that a worker would hand over or follow.
SELECT 'a batch is ' || state || ': only ended ones are restored'
FROM archived_batches WHERE state <> 'ended' LIMIT 1

-- name: release_complete
-- Has the run `:run` not held that lacks nothing.
UPDATE runs SET held = NULL
WHERE id = :run AND held = 'paused' AND NOT EXISTS ({missing_first_tries})
  AND NOT EXISTS (
    SELECT FROM run_models AS model JOIN retried_items AS retried ON retried.run_model_id = model.id
    WHERE model.run_id = :run AND {unanswered})

-- name: completions_to_restore
-- Puts completions of the archived verdicts back where that text was deleted from the run `:run`.
-- What `reparse` read in it since then may be another: the text is not.
UPDATE verdicts AS verdict SET completion = old.completion, completion_sha256 = NULL
FROM archived_verdicts AS old
WHERE verdict.run_model_id IN ({models_of_run})
  AND verdict.run_model_id = old.run_model_id AND verdict.sample_key = old.sample_key
  AND verdict.epoch = old.epoch AND verdict.generation = old.generation
  AND verdict.completion_sha256 = sha256(convert_to(old.completion, 'UTF8'))

-- name: count_restored
-- Writes down that `:completions` of the run `:run` are back.
UPDATE runs
SET pruned_completions = pruned_completions - :completions,
    pruned_at = CASE WHEN pruned_completions > :completions THEN pruned_at END
WHERE id = :run
