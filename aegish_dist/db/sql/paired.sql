-- Answers of several models side by side, sample by sample: `db.answers` reads these.

-- name: read_samples
-- The samples that the run `:run` asks, those of one kind in one row: their keys and, in the same
-- order, their ids. Labels are those that an overlay gives them.
SELECT dataset.name AS dataset, sample.target, sample.category, sample.cluster, sample.excluded,
       string_agg(sample.key::text, ' ') AS keys, array_agg(sample.sample_id) AS sample_ids
FROM run_datasets AS asked
JOIN datasets AS dataset ON dataset.id = asked.dataset_id
JOIN {effective_samples} AS sample ON sample.dataset_id = dataset.id
WHERE asked.run_id = :run
GROUP BY dataset.name, sample.target, sample.category, sample.cluster, sample.excluded

-- name: read_answers
-- One row: the keys of a model's samples, and as many words in the same order: the codes of the
-- verdicts about a sample, joined by commas. Texts are read ten times as fast as rows.
SELECT coalesce(string_agg(sample_key::text, ' '), '') AS keys,
       coalesce(string_agg(codes, ' '), '') AS codes
FROM (
    SELECT verdict.sample_key, string_agg(verdict.code::text, ',') AS codes
    FROM verdicts AS verdict
    WHERE verdict.run_model_id = :model AND {counts}
    GROUP BY verdict.sample_key
) AS item

-- name: read_answers_of_one_epoch
-- The same where no sample has two verdicts that count.
SELECT coalesce(string_agg(verdict.sample_key::text, ' '), '') AS keys,
       coalesce(string_agg(verdict.code::text, ' '), '') AS codes
FROM verdicts AS verdict
WHERE verdict.run_model_id = :model AND {counts}

-- name: read_guard
-- The same with an item in place of a sample, as KEY.EPOCH, and columns of its verdict; '-' is null.
SELECT coalesce(string_agg(verdict.sample_key || '.' || verdict.epoch, ' '), '') AS items,
       coalesce(string_agg(verdict.code::text, ' '), '') AS codes,
       coalesce(string_agg(coalesce(verdict.confidence::text, '-'), ' '), '') AS confidences,
       coalesce(string_agg(coalesce(verdict.suspicion::text, '-'), ' '), '') AS natives,
       coalesce(string_agg(coalesce(verdict.cost_usd::text, '-'), ' '), '') AS costs,
       coalesce(string_agg(coalesce(verdict.service_ms::text, '-'), ' '), '') AS times
FROM verdicts AS verdict
WHERE verdict.run_model_id = :model AND {counts}

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
