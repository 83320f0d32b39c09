-- The samples of a run with their commands: `db.sample_findings` reads these.

-- name: samples_of_run
-- The samples that the run `:run` asks.
SELECT sample.key, dataset.name AS dataset, sample.sample_id, sample.command, sample.target,
       sample.category, sample.cluster
FROM run_datasets AS asked
JOIN datasets AS dataset ON dataset.id = asked.dataset_id
JOIN samples AS sample ON sample.dataset_id = dataset.id
WHERE asked.run_id = :run
ORDER BY dataset.name, sample.key

-- name: datasets_of_samples
-- The names of the datasets of the samples `:keys`.
SELECT sample.key, dataset.name
FROM samples AS sample JOIN datasets AS dataset ON dataset.id = sample.dataset_id
WHERE sample.key = ANY(:keys)
