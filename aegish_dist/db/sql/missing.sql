-- Items without a verdict: `db.missing` and `db.progress` read these.

-- fragment: unanswered
-- Condition that an item of a retry, `retried`, has no verdict yet.
NOT EXISTS (
    SELECT FROM verdicts AS verdict
    WHERE verdict.run_model_id = retried.run_model_id AND verdict.sample_key = retried.sample_key
      AND verdict.epoch = retried.epoch AND verdict.generation >= retried.generation)

-- fragment: first_try_in_queue
-- Condition that the first try of `sample` in the epoch `repeat` by `model` is asked by a message, and
-- not in batches.
(model.batch_from IS NULL OR model.batch_from > now() OR EXISTS (
    SELECT FROM batched_items AS batched
    WHERE batched.run_model_id = model.id AND batched.sample_key = sample.key
      AND batched.epoch = repeat.epoch AND batched.generation = 0 AND batched.live))

-- fragment: retry_in_queue
-- Condition that an item of a retry, `retried`, of `model` is asked by a message, and not in batches.
(model.batch_from IS NULL OR model.batch_from > now() OR EXISTS (
    SELECT FROM batched_items AS batched
    WHERE batched.run_model_id = model.id AND batched.sample_key = retried.sample_key
      AND batched.epoch = retried.epoch AND batched.generation = retried.generation
      AND batched.live))

-- fragment: missing_first_tries
-- First tries of the run `:run` that have no verdict: models x samples x epochs, minus verdicts. An
-- imported run has planned none but those that it holds.
SELECT model.model, sample.key AS sample_key, repeat.epoch, 0 AS generation
FROM runs AS run
JOIN run_models AS model ON model.run_id = run.id
JOIN run_datasets AS asked ON asked.run_id = run.id
JOIN samples AS sample ON sample.dataset_id = asked.dataset_id
CROSS JOIN generate_series(1, run.epochs) AS repeat (epoch)
WHERE run.id = :run AND run.origin = 'submit' AND NOT EXISTS (
    SELECT FROM verdicts AS verdict
    WHERE verdict.run_model_id = model.id AND verdict.sample_key = sample.key
      AND verdict.epoch = repeat.epoch)

-- fragment: mixed
-- Order of samples in which those of all datasets and targets are mixed, the same each time: whatever
-- part of a run is asked can be scored.
hashint8(sample_key), sample_key

-- name: missing_items
-- Every item of the run `:run` that has no verdict and is asked by a message: first tries, and what
-- retries plan. What is asked in batches is left out.
SELECT item.* FROM (
    {missing_first_tries} AND {first_try_in_queue}
    UNION ALL
    SELECT model.model, retried.sample_key, retried.epoch, retried.generation
    FROM run_models AS model JOIN retried_items AS retried ON retried.run_model_id = model.id
    WHERE model.run_id = :run AND {unanswered} AND {retry_in_queue}) AS item
ORDER BY model, generation, epoch, {mixed}

-- name: missing_items_beyond
-- First tries of the run `:run` that have no verdict, are asked by a message, and were not planned
-- while it asked no more than `:models` about `:datasets`, each sample `:epochs` times.
{missing_first_tries} AND {first_try_in_queue}
  AND NOT (model.model = ANY(:models) AND asked.dataset_id = ANY(:datasets)
           AND repeat.epoch <= :epochs)
ORDER BY model.model, repeat.epoch, hashint8(sample.key), sample.key

-- name: missing_items_of_retry
-- The items of the retry `:generation` of the run `:run` that have no verdict yet and are asked by a
-- message.
SELECT model.model, retried.sample_key, retried.epoch, retried.generation
FROM run_models AS model JOIN retried_items AS retried ON retried.run_model_id = model.id
WHERE model.run_id = :run AND retried.generation = :generation AND {unanswered}
  AND {retry_in_queue}
ORDER BY model.model, epoch, {mixed}

-- name: count_unanswered_retries
-- How many items of retries lack their verdict, by model of the run `:run`.
SELECT model.model, count(*) AS items
FROM run_models AS model JOIN retried_items AS retried ON retried.run_model_id = model.id
WHERE model.run_id = :run AND {unanswered}
GROUP BY model.model

-- name: next_generation
-- The generation of the next retry of the run `:run`: above all that were planned or have verdicts.
SELECT 1 + greatest(
    (SELECT max(generation) FROM retries WHERE run_id = :run),
    (SELECT max(verdict.generation)
     FROM verdicts AS verdict JOIN run_models AS model ON model.id = verdict.run_model_id
     WHERE model.run_id = :run AND verdict.generation > 0),
    0)

-- name: plan_retry
-- Plans once more, as `:generation`, the items of `:models` of the run `:run` whose newest verdict
-- ended in one of `:outcomes`, the tens digit of its code. An item that waits for an earlier retry
-- is not planned again: its verdict is not known yet.
INSERT INTO retried_items (run_model_id, sample_key, epoch, generation)
SELECT verdict.run_model_id, verdict.sample_key, verdict.epoch, :generation
FROM runs AS run
JOIN run_models AS model ON model.run_id = run.id
JOIN verdicts AS verdict ON verdict.run_model_id = model.id
WHERE run.id = :run AND model.model = ANY(:models)
  AND verdict.code / 10 % 10 = ANY(:outcomes) AND {newest}
  AND NOT EXISTS (
    SELECT FROM retried_items AS planned
    WHERE planned.run_model_id = verdict.run_model_id AND planned.sample_key = verdict.sample_key
      AND planned.epoch = verdict.epoch AND planned.generation > verdict.generation)

-- name: open_asked_models
-- Opens the models of the run `:run` that are asked over a queue.
UPDATE run_models SET open = true WHERE run_id = :run AND queue <> ''

-- name: open_models
-- The models that workers listen to, with the epochs and the datasets of their runs.
SELECT model.id, model.run_id, model.model, run.epochs, array_agg(asked.dataset_id) AS datasets
FROM run_models AS model
JOIN runs AS run ON run.id = model.run_id
JOIN run_datasets AS asked ON asked.run_id = run.id
WHERE model.open
GROUP BY model.id, run.epochs
ORDER BY model.id

-- name: add_retry
-- Notes that the retry `:generation` of the run `:run` planned `:items` items that ended in
-- `:outcomes`.
INSERT INTO retries (run_id, generation, outcomes, items)
VALUES (:run, :generation, :outcomes, :items)

-- name: last_sample
-- The greatest key of a sample; 0 where there is none.
SELECT coalesce(max(key), 0) FROM samples

-- name: read_samples_by_key
-- Settings of this transaction alone, for `first_missing`: samples are read by their key and the
-- search ends with the first that is asked for, even where the statistics are wrong about their
-- number.
SELECT set_config('enable_bitmapscan', 'off', true) AS bitmap_scan,
       set_config('enable_sort', 'off', true) AS sort

-- name: first_missing
-- The first sample after the key `:after` and up to `:through` of `:datasets` that lacks a verdict
-- of the model `:model` in one of `:epochs` epochs; no row when none does.
SELECT sample.key FROM samples AS sample
WHERE sample.key > :after AND sample.key <= :through AND sample.dataset_id = ANY(:datasets)
  AND :epochs > (
    SELECT count(*) FROM verdicts
    WHERE run_model_id = :model AND sample_key = sample.key AND generation = 0)
ORDER BY sample.key LIMIT 1

-- name: lock_open_models
-- Those of `:models` that are open and that no other transaction has locked, now locked.
SELECT id FROM run_models WHERE id = ANY(:models) AND open FOR NO KEY UPDATE SKIP LOCKED

-- name: close_finished_models
-- Closes those of `:models` that have all verdicts of first tries and of retries; returns their
-- runs.
UPDATE run_models SET open = false
WHERE id = ANY(:models)
  AND (SELECT count(*) FROM verdicts WHERE run_model_id = run_models.id AND generation = 0) >= (
    SELECT sum(dataset.samples) * run.epochs
    FROM runs AS run
    JOIN run_datasets AS asked ON asked.run_id = run.id
    JOIN datasets AS dataset ON dataset.id = asked.dataset_id
    WHERE run.id = run_models.run_id
    GROUP BY run.epochs)
  AND NOT EXISTS (
    SELECT FROM retried_items AS retried
    WHERE retried.run_model_id = run_models.id AND {unanswered})
RETURNING run_id
