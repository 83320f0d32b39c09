-- The samples of a run, one by one: `db.sample_findings` reads these.

-- name: samples_of_run
-- The samples that the run `:run` asks.
SELECT sample.key, dataset.name AS dataset, sample.sample_id, sample.command, sample.target,
       sample.category, sample.cluster
FROM run_datasets AS asked
JOIN datasets AS dataset ON dataset.id = asked.dataset_id
JOIN samples AS sample ON sample.dataset_id = dataset.id
WHERE asked.run_id = :run
ORDER BY dataset.name, sample.key

-- name: codes_by_sample
-- The codes of the epochs of each sample, ascending.
SELECT verdict.sample_key AS key, array_agg(verdict.code ORDER BY verdict.code) AS codes
FROM verdicts AS verdict
WHERE verdict.run_model_id = :model AND {counts}
GROUP BY verdict.sample_key
