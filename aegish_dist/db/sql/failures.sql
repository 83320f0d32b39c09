-- When and why calls failed: `db.progress` reads these.

-- name: failures_by_time
-- Failed attempts of the models `:models` of the run `:run` and verdicts that ended without an
-- answer, of all generations, by stretch of `:width_s` seconds, model and reason; `message` is that
-- of the newest attempt. The time of a verdict is null where an import did not say it.
WITH model AS (
    SELECT id, model FROM run_models WHERE run_id = :run AND model = ANY(:models)
),
failed AS (
    SELECT model.model, error.error_class, error.status, error.message, error.at,
           true AS is_attempt
    FROM model JOIN call_errors AS error ON error.run_model_id = model.id
    UNION ALL
    SELECT unanswered.model, verdict.error_class, NULL, NULL, verdict.created_at, false
    FROM {verdicts_without_answer}
)
SELECT date_bin(make_interval(secs => :width_s), failed.at, 'epoch') AS time, failed.model,
       failed.error_class, count(*) FILTER (WHERE is_attempt) AS attempts,
       count(*) FILTER (WHERE NOT is_attempt) AS verdicts,
       coalesce(array_agg(DISTINCT failed.status ORDER BY failed.status)
                FILTER (WHERE failed.status IS NOT NULL), '{}') AS statuses,
       (array_agg(failed.message ORDER BY failed.at DESC) FILTER (WHERE is_attempt))[1] AS message,
       min(failed.at) AS first_at, max(failed.at) AS last_at
FROM failed
GROUP BY time, failed.model, failed.error_class
ORDER BY time NULLS FIRST, failed.model, failed.error_class

-- name: failure_span
-- When the first and the last of them happened; null where none did at a known time.
WITH model AS (SELECT id, model FROM run_models WHERE run_id = :run)
SELECT min(failed.at) AS first_at, max(failed.at) AS last_at
FROM (
    SELECT error.at FROM model JOIN call_errors AS error ON error.run_model_id = model.id
    UNION ALL
    SELECT verdict.created_at FROM {verdicts_without_answer}
) AS failed

-- name: answer_span
-- When the first and the last answer to the models with the keys `:models` came; null without any.
-- As the keys are values, PostgreSQL knows how few verdicts a small run has among those of others.
SELECT min(verdict.created_at) AS first_at, max(verdict.created_at) AS last_at
FROM verdicts AS verdict
WHERE verdict.run_model_id = ANY(CAST(:models AS integer[])) AND verdict.code < 100

-- fragment: verdicts_without_answer
-- Verdicts without an answer of the models of the query `model`. They are found in the primary key's
-- index, and only they are read.
(
    SELECT model.model, key.run_model_id, key.sample_key, key.epoch, key.generation
    FROM model JOIN verdicts AS key ON key.run_model_id = model.id AND key.code >= 100
    OFFSET 0
) AS unanswered
JOIN verdicts AS verdict USING (run_model_id, sample_key, epoch, generation)

-- name: failed_kinds
-- Failed attempts of the run `:run` by model, reason and status, those of the last `:lately_s`
-- seconds also by themselves; `message` is that of the newest attempt, of the `:messages` kinds that
-- occurred last. Messages are long, so only these are read.
SELECT model.model, kind.error_class, kind.status, kind.calls, kind.calls_lately, kind.last_at AS at,
       CASE WHEN kind.place <= :messages THEN (
           SELECT newest.message FROM call_errors AS newest
           WHERE newest.run_model_id = kind.run_model_id AND newest.error_class = kind.error_class
             AND newest.status IS NOT DISTINCT FROM kind.status AND newest.at = kind.last_at
           LIMIT 1) END AS message
FROM (
    SELECT error.run_model_id, error.error_class, error.status, count(*) AS calls,
           count(*) FILTER (WHERE error.at > now() - make_interval(secs => :lately_s))
               AS calls_lately,
           max(error.at) AS last_at, row_number() OVER (ORDER BY max(error.at) DESC) AS place
    FROM call_errors AS error
    WHERE error.run_model_id IN (SELECT id FROM run_models WHERE run_id = :run)
    GROUP BY error.run_model_id, error.error_class, error.status
) AS kind
JOIN run_models AS model ON model.id = kind.run_model_id
ORDER BY kind.last_at DESC, model.model, kind.error_class, kind.status
