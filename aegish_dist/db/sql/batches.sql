-- The life of batches: `db.batches` and `db.missing` read and write these.

-- fragment: batching_model
-- Columns of `model`, with where its calls go, which its specification says.
model.id AS run_model_id, model.run_id, model.model, model.queue,
model.batch_from, model.spec

-- name: models_to_plan
-- The models of runs that are asked in batches now and lack something, with where their calls go.
SELECT {batching_model}
FROM run_models AS model JOIN runs AS run ON run.id = model.run_id
WHERE model.open AND model.batch_from <= now() AND run.held IS NULL
ORDER BY model.id

-- name: models_of_due_batches
-- The models of runs that have a batch which is due, with where their calls go.
SELECT {batching_model}
FROM run_models AS model
WHERE model.id IN (SELECT run_model_id FROM batches WHERE state <> 'ended' AND due_at <= now())
ORDER BY model.id

-- name: take_due_batches
-- Gives up to `:limit` due batches of `:models` to `:worker` for `:lease_s` seconds. One that another
-- transaction is taking is left out.
WITH due AS MATERIALIZED (
    SELECT id FROM batches
    WHERE state <> 'ended' AND due_at <= now() AND run_model_id = ANY(:models)
    ORDER BY due_at, id LIMIT :limit
    FOR UPDATE SKIP LOCKED)
UPDATE batches AS batch
SET worker = :worker, due_at = now() + make_interval(secs => :lease_s)
FROM due, run_models AS model, runs AS run
WHERE batch.id = due.id AND model.id = batch.run_model_id AND run.id = model.run_id
RETURNING batch.id, batch.run_model_id, batch.token, batch.state, batch.requests,
          batch.provider_name, batch.adopted, batch.refused_names, batch.failures,
          coalesce(batch.creating_at, batch.created_at) AS begun_at, batch.counts,
          model.run_id, model.model, run.held,
          batch.cancelled_at IS NOT NULL AS cancel_asked,
          extract(epoch FROM now() - batch.creating_at) AS creating_s,
          extract(epoch FROM now() - batch.submitted_at) AS submitted_s

-- name: cancelled_among
-- Those of `:batches` whose runs are cancelled.
SELECT batch.id
FROM batches AS batch JOIN run_models AS model ON model.id = batch.run_model_id
JOIN runs AS run ON run.id = model.run_id
WHERE batch.id = ANY(:batches) AND run.held = 'cancelled'

-- name: renew_batch_lease
-- Prolongs the lease of `:worker` on the batch `:id` to `:lease_s` seconds from now.
UPDATE batches SET due_at = now() + make_interval(secs => :lease_s)
WHERE id = :id AND worker = :worker AND state <> 'ended'

-- name: hurry_batches
-- Makes the open batches of the run `:run` due that no worker has.
UPDATE batches SET due_at = now()
FROM run_models AS model
WHERE model.run_id = :run AND batches.run_model_id = model.id
  AND batches.state <> 'ended' AND batches.worker IS NULL

-- name: batchable_items
-- The items of the model `:model` of the run `:run` that have no verdict, are in no open batch and
-- are not asked live, with their commands.
SELECT item.sample_key, item.epoch, item.generation, sample.command
FROM (
    {missing_first_tries} AND model.id = :model
    UNION ALL
    SELECT model.model, retried.sample_key, retried.epoch, retried.generation
    FROM run_models AS model JOIN retried_items AS retried ON retried.run_model_id = model.id
    WHERE model.id = :model AND {unanswered}) AS item
JOIN samples AS sample ON sample.key = item.sample_key
WHERE NOT EXISTS (
    SELECT FROM batched_items AS batched
    WHERE batched.run_model_id = :model AND batched.sample_key = item.sample_key
      AND batched.epoch = item.epoch AND batched.generation = item.generation
      AND (batched.batch_id IS NOT NULL OR batched.live))
ORDER BY item.generation, item.epoch, {mixed}

-- name: add_batch
-- Adds a planned batch of `:requests` requests to the model `:model`, and returns its key.
INSERT INTO batches (run_model_id, token, state, requests, expected_usd)
VALUES (:model, :token, 'planned', :requests, :expected_usd)
RETURNING id

-- name: put_items_in_batch
-- Puts items of its model into the batch `:batch`: one more try of those that were in others. One that
-- is in an open batch, or is asked live, is left out.
INSERT INTO batched_items AS batched (run_model_id, sample_key, epoch, generation, batch_id)
SELECT batch.run_model_id, item.sample_key, item.epoch, item.generation, batch.id
FROM batches AS batch
CROSS JOIN unnest(CAST(:keys AS bigint[]), CAST(:epochs AS smallint[]), CAST(:generations AS smallint[]))
     AS item (sample_key, epoch, generation)
WHERE batch.id = :batch
ON CONFLICT (run_model_id, sample_key, epoch, generation) DO UPDATE
SET batch_id = excluded.batch_id, tries = batched.tries + 1
WHERE batched.batch_id IS NULL AND NOT batched.live

-- name: requests_of_batch
-- The items of the batch `:batch` and their commands, in the order in which they were planned.
SELECT item.sample_key, item.epoch, item.generation, sample.command
FROM batched_items AS item JOIN samples AS sample ON sample.key = item.sample_key
WHERE item.batch_id = :batch
ORDER BY item.generation, item.epoch, item.sample_key

-- name: forget_answered_items
-- Removes the items of the batch `:batch` that have their verdict, by whatever way.
DELETE FROM batched_items AS item USING verdicts AS verdict
WHERE item.batch_id = :batch AND verdict.run_model_id = item.run_model_id
  AND verdict.sample_key = item.sample_key AND verdict.epoch = item.epoch
  AND verdict.generation >= item.generation

-- name: name_problems_of_items
-- Writes down why the items of the batch `:batch` got no verdict in it.
UPDATE batched_items AS item SET problem = left_over.problem
FROM unnest(CAST(:keys AS bigint[]), CAST(:epochs AS smallint[]), CAST(:generations AS smallint[]),
            CAST(:problems AS text[])) AS left_over (sample_key, epoch, generation, problem)
WHERE item.batch_id = :batch AND item.sample_key = left_over.sample_key
  AND item.epoch = left_over.epoch AND item.generation = left_over.generation

-- name: ask_items_live
-- Has the items of the batch `:batch` asked live that were in `:tries` batches.
UPDATE batched_items SET live = true WHERE batch_id = :batch AND tries >= :tries

-- name: live_items_of_batch
-- The items of the batch `:batch` that are asked live.
SELECT sample_key, epoch, generation FROM batched_items WHERE batch_id = :batch AND live
ORDER BY generation, epoch, {mixed}

-- name: free_items_of_batch
-- Has the items of the batch `:batch` be in none; `:refunded` of their tries do not count.
UPDATE batched_items SET batch_id = NULL, tries = greatest(0, tries - :refunded)
WHERE batch_id = :batch

-- name: failed_batches_in_a_row
-- How many of the newest ended batches of the model `:model` have failed as a whole, up to the first
-- that has not, and the seconds since the last of them ended.
SELECT count(*) AS failed, extract(epoch FROM now() - max(ended_at)) AS ended_s
FROM batches AS batch
WHERE run_model_id = :model AND state = 'ended' AND counts ? 'failed_as_a_whole'
  AND NOT EXISTS (
    SELECT FROM batches AS later
    WHERE later.run_model_id = :model AND later.state = 'ended' AND NOT later.counts ? 'failed_as_a_whole'
      AND later.ended_at >= batch.ended_at)

-- name: forget_live_items
-- Removes the items of `:models` that are asked live and have their verdict.
DELETE FROM batched_items AS item USING verdicts AS verdict
WHERE item.run_model_id = ANY(:models) AND item.live AND verdict.run_model_id = item.run_model_id
  AND verdict.sample_key = item.sample_key AND verdict.epoch = item.epoch
  AND verdict.generation >= item.generation

-- name: is_batch_open
-- Whether a batch of the run `:run` is open that workers move on: those of a paused run that no
-- provider knows yet wait.
SELECT EXISTS (
    SELECT FROM batches AS batch JOIN run_models AS model ON model.id = batch.run_model_id
    JOIN runs AS run ON run.id = model.run_id
    WHERE run.id = :run AND batch.state <> 'ended'
      AND (batch.state <> 'planned' OR run.held IS DISTINCT FROM 'paused'))

-- name: is_batch_to_be_planned
-- Whether the run `:run` lacks an item that can come into a batch.
SELECT EXISTS (
    SELECT FROM run_models AS batching CROSS JOIN LATERAL (
        {missing_first_tries} AND model.id = batching.id
        UNION ALL
        SELECT model.model, retried.sample_key, retried.epoch, retried.generation
        FROM run_models AS model JOIN retried_items AS retried ON retried.run_model_id = model.id
        WHERE model.id = batching.id AND {unanswered}) AS item
    WHERE batching.run_id = :run AND batching.open AND batching.batch_from IS NOT NULL
      AND EXISTS (SELECT FROM runs WHERE id = :run AND held IS NULL)
      AND NOT EXISTS (
        SELECT FROM batched_items AS batched
        WHERE batched.run_model_id = batching.id AND batched.sample_key = item.sample_key
          AND batched.epoch = item.epoch AND batched.generation = item.generation
          AND (batched.batch_id IS NOT NULL OR batched.live)))

-- name: is_open_and_not_held
-- Whether workers may ask the model `:model` of a run; no row when its run is held.
SELECT model.open FROM run_models AS model JOIN runs AS run ON run.id = model.run_id
WHERE model.id = :model AND run.held IS NULL
