-- Sums over batches: `db.batches` reads these.

-- name: add_up_batches
-- One row for each model of the run `:run` that is asked in batches, now or later: the seconds until
-- then, how many batches it has by state, and of those that are not ended their requests, those that
-- the provider has answered, the seconds since the oldest was handed over, and their expected cost
-- (null where one is unknown). The problem is that of the newest open batch that has one, or else of
-- the newest batch. `live` are the items that are asked live, counted while no batch is open.
SELECT model.model,
       greatest(0, extract(epoch FROM model.batch_from - now()))::float8 AS starts_in_s,
       made.*,
       CASE WHEN made.open > 0 THEN 0 ELSE (
           SELECT count(*) FROM batched_items WHERE run_model_id = model.id AND live) END AS live
FROM run_models AS model
CROSS JOIN LATERAL (
    SELECT count(*) AS batches,
           count(*) FILTER (WHERE state = 'planned') AS planned,
           count(*) FILTER (WHERE state = 'creating') AS creating,
           count(*) FILTER (WHERE state = 'in_progress') AS in_progress,
           count(*) FILTER (WHERE state = 'collecting') AS collecting,
           count(*) FILTER (WHERE state = 'ended') AS ended,
           count(*) FILTER (WHERE state <> 'ended') AS open,
           coalesce(sum(requests) FILTER (WHERE state <> 'ended'), 0)::bigint AS requests,
           coalesce(sum(coalesce((counts ->> 'succeeded')::bigint, 0)
                        + coalesce((counts ->> 'failed')::bigint, 0))
                    FILTER (WHERE state <> 'ended'), 0)::bigint AS answered,
           extract(epoch FROM now() - min(submitted_at) FILTER (WHERE state <> 'ended'))::float8
               AS oldest_s,
           CASE WHEN count(*) FILTER (WHERE state <> 'ended' AND expected_usd IS NULL) = 0
                THEN coalesce(sum(expected_usd) FILTER (WHERE state <> 'ended'), 0) END
               AS expected_usd,
           (array_agg(problem ORDER BY state = 'ended', id DESC)
            FILTER (WHERE problem IS NOT NULL AND (state <> 'ended' OR id = newest_id)))[1]
               AS problem
    FROM batches AS batch
    CROSS JOIN (SELECT max(id) AS id FROM batches WHERE run_model_id = model.id) AS newest (newest_id)
    WHERE batch.run_model_id = model.id) AS made
WHERE model.run_id = :run AND model.batch_from IS NOT NULL

-- name: usage_of_answers
-- One row: how many of `:limit` verdicts of the model `:model` of the run `:run` have tokens, and by these the
-- means of prompts and answers, each three standard errors above what was seen, so that a sum over
-- many calls does not exceed them.
SELECT count(*) AS answers,
       avg(input_tokens) + 3 * stddev_samp(input_tokens) / sqrt(count(*)) AS input_tokens,
       avg(output_tokens) + 3 * stddev_samp(output_tokens) / sqrt(count(*)) AS output_tokens
FROM (
    SELECT input_tokens, output_tokens FROM verdicts
    WHERE run_model_id = (SELECT id FROM run_models WHERE run_id = :run AND model = :model)
      AND input_tokens IS NOT NULL AND output_tokens IS NOT NULL
    LIMIT :limit) AS answered

-- name: count_batches_of_model
-- One row: the batches of the model `:model`, and those of them that are not ended.
SELECT count(*) AS batches, count(*) FILTER (WHERE state <> 'ended') AS open
FROM batches WHERE run_model_id = :model

-- name: known_batch_names
-- Those of `:names` that a batch has; certain where the provider gave one, or that batch has ended.
SELECT provider_name AS name, bool_or(NOT adopted OR state = 'ended') AS certain
FROM batches WHERE provider_name = ANY(:names) GROUP BY provider_name

-- name: count_batches_at_providers
-- How many batches of the run `:run` a provider works on, or may work on.
SELECT count(*) FROM batches AS batch JOIN run_models AS model ON model.id = batch.run_model_id
WHERE model.run_id = :run AND batch.state IN ('creating', 'in_progress', 'collecting')
