-- Labels of samples as an overlay changes them: `db.overlays` binds the values.

-- fragment: effective_samples
-- A table to read in place of `samples`: targets and categories as the overlay changes them, and
-- whether it excludes a sample. The lists `:changed_keys`, `:changed_targets` (null: excluded) and
-- `:changed_categories` are `OverlayInRun.values`; empty lists change nothing.
(SELECT sample.key, sample.dataset_id, sample.sample_id, sample.command, sample.cluster,
        coalesce(change.target, sample.target) AS target,
        CASE WHEN change.target IS NULL THEN sample.category ELSE change.category END AS category,
        change.key IS NOT NULL AND change.target IS NULL AS excluded
 FROM samples AS sample
 LEFT JOIN unnest(CAST(:changed_keys AS bigint[]), CAST(:changed_targets AS text[]),
                  CAST(:changed_categories AS text[])) AS change (key, target, category)
      ON change.key = sample.key)

-- fragment: asked_by_run
-- Condition that the run `:run` asks a dataset.
dataset.id IN (SELECT dataset_id FROM run_datasets WHERE run_id = :run)

-- fragment: of_these_names
-- Condition that a dataset has one of the names `:names`.
dataset.name = ANY(:names)

-- name: find_samples
-- Samples with one of the ids `:ids` or of the commands `:commands`, in the datasets that `{within}`
-- chooses.
SELECT sample.key, dataset.name AS dataset, sample.sample_id, sample.command, sample.target
FROM samples AS sample JOIN datasets AS dataset ON dataset.id = sample.dataset_id
WHERE {within} AND (sample.sample_id = ANY(:ids) OR sample.command = ANY(:commands))
