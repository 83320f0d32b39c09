-- Datasets, their samples, and prompts: `db.runs` and `db.verdicts` use these.

-- name: find_dataset
-- The key of the dataset `:name` whose content is `:fingerprint`.
SELECT id FROM datasets WHERE name = :name AND fingerprint = :fingerprint

-- name: add_dataset
-- Adds a dataset, and returns its key.
INSERT INTO datasets (name, fingerprint, source, licence, samples, malicious, selectable)
VALUES (:name, :fingerprint, :source, :licence, :samples, :malicious, :selectable)
RETURNING id

-- name: renew_dataset
-- Has the name of the dataset `:id` stand for it: it is the one imported last.
UPDATE datasets
SET source = :source, licence = :licence, selectable = true, created_at = clock_timestamp()
WHERE id = :id

-- name: selectable_datasets
-- The datasets that a run may name, newest last.
SELECT name, fingerprint, samples, malicious, source, licence
FROM datasets WHERE selectable ORDER BY created_at

-- name: newest_dataset
-- The newest dataset `:name` that a run may name.
SELECT id, name, source, licence FROM datasets WHERE name = :name AND selectable
ORDER BY created_at DESC, id DESC LIMIT 1

-- name: dataset_of_run
-- The dataset `:name` that the run `:run` asks.
SELECT dataset.id, dataset.name, dataset.source, dataset.licence
FROM datasets AS dataset JOIN run_datasets AS asked ON asked.dataset_id = dataset.id
WHERE asked.run_id = :run AND dataset.name = :name

-- name: lock_dataset
-- The newest dataset `:name`, of the content `:fingerprint` unless that is null: until the transaction
-- ends it cannot be deleted.
SELECT id FROM datasets
WHERE name = :name AND (CAST(:fingerprint AS text) IS NULL OR fingerprint = :fingerprint)
ORDER BY id DESC LIMIT 1
FOR KEY SHARE

-- name: complete_dataset
-- Writes down what is known of the dataset `:id` once it has all samples.
UPDATE datasets
SET fingerprint = :fingerprint, samples = :samples, malicious = :malicious
WHERE id = :id

-- name: samples_among
-- The samples of the dataset `:dataset` with one of the ids `:ids`.
SELECT sample_id, command, target, category, cluster, details
FROM samples WHERE dataset_id = :dataset AND sample_id = ANY(:ids)

-- name: add_samples
-- Adds the samples in the JSON list `:rows` to the dataset `:dataset`; returns their keys, which grow
-- in the order of the list.
INSERT INTO samples (dataset_id, sample_id, command, target, category, cluster, details)
SELECT :dataset, sample_id, command, target, category, cluster, metadata
FROM json_to_recordset(CAST(:rows AS json)) AS sample (
    sample_id text, command text, target text, category text, cluster text, metadata jsonb)
RETURNING sample_id, key

-- name: samples_of_dataset
-- The samples of the dataset `:dataset`, in order.
SELECT command, target, category, cluster, details
FROM samples WHERE dataset_id = :dataset ORDER BY key

-- name: keys_of_samples
-- The keys of the samples of the dataset `:dataset`.
SELECT sample_id, key FROM samples WHERE dataset_id = :dataset

-- name: find_prompt
-- The prompt `:name` whose content is `:fingerprint`.
SELECT id, system, template FROM prompts WHERE name = :name AND fingerprint = :fingerprint

-- name: add_prompt
-- Adds a prompt, and returns its key.
INSERT INTO prompts (name, fingerprint, system, template)
VALUES (:name, :fingerprint, :system, :template)
RETURNING id

-- name: pinned_prompt
-- The prompt `:name` whose fingerprint begins with `:fingerprint`.
SELECT name, system, template FROM prompts
WHERE name = :name AND starts_with(fingerprint, :fingerprint) LIMIT 1

-- name: asked_prompts
-- The prompts that the run `:run` and its models ask with.
SELECT id, name, system, template FROM prompts
WHERE id IN (SELECT prompt_id FROM runs WHERE id = :run
             UNION SELECT prompt_id FROM run_models WHERE run_id = :run)
