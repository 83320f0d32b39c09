-- The verdicts of guards as columns: `db.columns` reads these.

-- name: read_samples
-- The keys of the samples that the run `:run` asks, those of one kind in one row. Labels are those
-- that an overlay gives them.
SELECT dataset.name AS dataset, sample.target, sample.category, sample.cluster, sample.excluded,
       array_agg(sample.key) AS keys
FROM run_datasets AS asked
JOIN datasets AS dataset ON dataset.id = asked.dataset_id
JOIN {effective_samples} AS sample ON sample.dataset_id = dataset.id
WHERE asked.run_id = :run
GROUP BY dataset.name, sample.target, sample.category, sample.cluster, sample.excluded
ORDER BY dataset.name

-- name: read_columns_of_guard
-- The verdicts of a model that count, `{fields}` of each behind the other in one value for some
-- thousand samples. A row for each verdict would cost its reader more than the database.
SELECT string_agg({fields}, '')
FROM verdicts AS verdict
WHERE verdict.run_model_id = :model AND {counts}
GROUP BY verdict.sample_key >> 14

-- name: read_parser_versions
-- The versions of the parser that read a model's verdicts; 0 stands for nothing to read.
SELECT DISTINCT verdict.parser_version
FROM verdicts AS verdict
WHERE verdict.run_model_id = :model AND verdict.parser_version > 0 AND {counts}

-- name: read_commands
-- The samples `:keys` in their order, each with the reason of the first epoch in which the model's
-- verdict has one of `:codes` and gives one.
SELECT sample.sample_id, sample.command, answer.reason
FROM unnest(CAST(:keys AS bigint[])) WITH ORDINALITY AS asked (key, place)
JOIN samples AS sample ON sample.key = asked.key
LEFT JOIN LATERAL (
    SELECT verdict.reason
    FROM verdicts AS verdict
    WHERE verdict.run_model_id = :model AND verdict.sample_key = asked.key
      AND verdict.code = ANY(CAST(:codes AS smallint[])) AND verdict.reason IS NOT NULL
      AND {counts}
    ORDER BY verdict.epoch
    LIMIT 1
) AS answer ON true
ORDER BY asked.place
