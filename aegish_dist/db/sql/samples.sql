-- The samples of a run with their commands: `db.columns` and `pipeline.verdicts`
-- read these.

-- name: samples_of_run
-- The samples that the run `:run` asks, with the labels that an overlay gives them.
SELECT sample.key, dataset.name AS dataset, sample.sample_id, sample.command, sample.target,
       sample.category, sample.cluster, sample.excluded
FROM run_datasets AS asked
JOIN datasets AS dataset ON dataset.id = asked.dataset_id
JOIN {effective_samples} AS sample ON sample.dataset_id = dataset.id
WHERE asked.run_id = :run
ORDER BY dataset.name, sample.key

-- name: datasets_of_samples
-- The names of the datasets of the samples `:keys`.
SELECT sample.key, dataset.name
FROM samples AS sample JOIN datasets AS dataset ON dataset.id = sample.dataset_id
WHERE sample.key = ANY(:keys)
