-- Sums over batches: `db.batch_totals` reads these.

-- name: add_up_batches
-- One row for each model of the run `:run` that has batches: how many by state, and of those that
-- are not ended their requests, those that the provider has answered, the seconds since the oldest
-- was handed over, and their expected cost (null where one is unknown). The problem is that of the
-- newest open batch that has one, or else of the newest batch.
SELECT model.model, model.id AS run_model_id, count(*) AS batches,
       count(*) FILTER (WHERE batch.state = 'planned') AS planned,
       count(*) FILTER (WHERE batch.state = 'creating') AS creating,
       count(*) FILTER (WHERE batch.state = 'in_progress') AS in_progress,
       count(*) FILTER (WHERE batch.state = 'collecting') AS collecting,
       count(*) FILTER (WHERE batch.state = 'ended') AS ended,
       coalesce(sum(batch.requests) FILTER (WHERE batch.state <> 'ended'), 0) AS requests,
       coalesce(sum(coalesce((batch.counts ->> 'succeeded')::bigint, 0)
                    + coalesce((batch.counts ->> 'failed')::bigint, 0))
                FILTER (WHERE batch.state <> 'ended'), 0) AS answered,
       extract(epoch FROM now() - min(batch.submitted_at)
               FILTER (WHERE batch.state <> 'ended')) AS oldest_s,
       sum(batch.expected_usd) FILTER (WHERE batch.state <> 'ended') AS expected_usd,
       count(*) FILTER (WHERE batch.state <> 'ended' AND batch.expected_usd IS NULL) AS unpriced,
       (array_agg(batch.problem ORDER BY batch.state = 'ended', batch.id DESC)
        FILTER (WHERE batch.problem IS NOT NULL
                AND (batch.state <> 'ended' OR batch.id = newest.id)))[1] AS problem
FROM run_models AS model
JOIN batches AS batch ON batch.run_model_id = model.id
CROSS JOIN LATERAL (
    SELECT max(id) AS id FROM batches WHERE run_model_id = model.id) AS newest
WHERE model.run_id = :run
GROUP BY model.model, model.id

-- name: usage_of_answers
-- One row: how many of `:limit` verdicts of the model `:model` have tokens, and by these the
-- means of prompts and answers, each three standard errors above what was seen, so that a sum over
-- many calls does not exceed them.
SELECT count(*) AS answers,
       avg(input_tokens) + 3 * stddev_samp(input_tokens) / sqrt(count(*)) AS input_tokens,
       avg(output_tokens) + 3 * stddev_samp(output_tokens) / sqrt(count(*)) AS output_tokens
FROM (
    SELECT input_tokens, output_tokens FROM verdicts
    WHERE run_model_id = :model
      AND input_tokens IS NOT NULL AND output_tokens IS NOT NULL
    LIMIT :limit) AS answered

-- name: lock_run
-- Has other transactions that plan batches of the run `:run` wait until this one ends.
SELECT FROM runs WHERE id = :run FOR NO KEY UPDATE
