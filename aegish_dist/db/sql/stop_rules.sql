-- Runs that stop by themselves: `db.stop_rules` and `db.missing` read these.

-- fragment: place_of_sample
-- What the samples of a run with the seed `:seed` are ordered by: clusters at random, the samples
-- of one together, the same for every model.
md5(:seed || CASE WHEN sample.cluster IS NULL THEN ' sample ' || sample.sample_id
             ELSE ' cluster ' || sample.cluster END)

-- fragment: stopped
-- Condition that the stop rule of `run` has ended the questions about `model`.
(run.stop_rule IS NOT NULL
 AND coalesce(run.decision -> 'stopped', '[]'::jsonb) @> to_jsonb(model.model))

-- name: missing_items_in_random_order
-- The items of `missing_items` for a run with a stop rule; none of the models that it has stopped.
SELECT missing.model, missing.sample_key, missing.epoch, missing.generation
FROM (
    SELECT model.model, sample.key AS sample_key, repeat.epoch, 0 AS generation,
           {place_of_sample} AS place
    FROM runs AS run
    JOIN run_models AS model ON model.run_id = run.id
    JOIN run_datasets AS asked ON asked.run_id = run.id
    JOIN samples AS sample ON sample.dataset_id = asked.dataset_id
    CROSS JOIN generate_series(1, run.epochs) AS repeat (epoch)
    WHERE run.id = :run AND NOT {stopped} AND {first_try_in_queue} AND NOT EXISTS (
        SELECT FROM verdicts AS verdict
        WHERE verdict.run_model_id = model.id AND verdict.sample_key = sample.key
          AND verdict.epoch = repeat.epoch)
    UNION ALL
    SELECT model.model, retried.sample_key, retried.epoch, retried.generation, ''
    FROM runs AS run
    JOIN run_models AS model ON model.run_id = run.id
    JOIN retried_items AS retried ON retried.run_model_id = model.id
    WHERE run.id = :run AND NOT {stopped} AND {unanswered} AND {retry_in_queue}
) AS missing
ORDER BY missing.model, missing.generation, missing.place, missing.sample_key, missing.epoch

-- name: ruled_runs
-- The runs that have a stop rule and are asked about, or have not been read since all their models
-- were closed, with their rule and their last reading.
SELECT run.id, run.epochs, run.stop_rule, run.decision, NOT asked.about AS closed
FROM runs AS run
CROSS JOIN LATERAL (
    SELECT EXISTS (
        SELECT FROM run_models AS model WHERE model.run_id = run.id AND model.open) AS about
) AS asked
WHERE run.stop_rule IS NOT NULL AND run.held IS NULL
  AND (asked.about OR NOT coalesce((run.decision ->> 'final')::boolean, false))
ORDER BY run.id

-- name: order_of_samples
-- One row of lists: the samples of the run `:run` in the order in which they are asked, each with
-- the place of its cluster and its label.
SELECT array_agg(key ORDER BY place, key) AS keys, array_agg(place ORDER BY place, key) AS places,
       array_agg(malicious ORDER BY place, key) AS malicious
FROM (
    SELECT sample.key, sample.target = 'malicious' AS malicious,
           dense_rank() OVER (ORDER BY {place_of_sample}) - 1 AS place
    FROM run_datasets AS asked JOIN samples AS sample ON sample.dataset_id = asked.dataset_id
    WHERE asked.run_id = :run
) AS placed

-- name: answers_of_samples
-- Per sample that the model `:name` of the run `:run` was asked about: the epochs with a verdict,
-- those of them that are scored, and those that are right about a malicious and a harmless command.
SELECT verdict.sample_key AS key, count(*) AS answered,
       count(*) FILTER (WHERE code = ANY(:scored_codes)) AS scored,
       count(*) FILTER (WHERE code = ANY(:detections)) AS detected,
       count(*) FILTER (WHERE code = ANY(:acceptances)) AS accepted
FROM verdicts AS verdict JOIN run_models AS model ON model.id = verdict.run_model_id
WHERE model.run_id = :run AND model.model = :name AND {newest}
GROUP BY verdict.sample_key

-- name: open_asked_models
-- Opens the models of the run `:run` that are asked over a queue, but for those that its stop rule
-- has stopped.
UPDATE run_models AS model SET open = true
FROM runs AS run
WHERE run.id = :run AND model.run_id = run.id AND model.queue <> '' AND NOT {stopped}

-- name: stop_models
-- Closes those of `:models` of the run `:run` that are open: their items are not asked any more.
UPDATE run_models SET open = false WHERE run_id = :run AND model = ANY(:models) AND open

-- name: is_ruled
-- The seed of the stop rule of the run `:run`; no row for a run without one.
SELECT stop_rule ->> 'seed' AS seed FROM runs WHERE id = :run AND stop_rule IS NOT NULL
