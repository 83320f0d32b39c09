-- Runs and their items: `db.runs`, `db.missing`, `db.verdicts`, `db.batches`, `db.schema`,
-- `db.verdict_reader` and `pipeline.archives` use these.

-- name: wait_for_lock
-- Takes the advisory lock `:key` until the transaction ends, once no other one holds it.
SELECT pg_advisory_xact_lock(:key)

-- name: try_lock
-- Whether the advisory lock `:key` was free, and is this transaction's now.
SELECT pg_try_advisory_xact_lock(:key)

-- name: database_time
-- When this transaction began, by the server's clock.
SELECT now()

-- name: stored_run
-- The row of the run `:run`.
SELECT * FROM runs WHERE id = :run

-- name: add_run
-- Adds a run.
INSERT INTO runs (
    id, name, origin, package_version, prompt_id, parameters, epochs, created_at, held,
    pruned_completions, pruned_at)
VALUES (
    :id, :name, :origin, :package_version, :prompt_id, CAST(:parameters AS jsonb), :epochs,
    :created_at, :held, :pruned_completions, :pruned_at)

-- name: newest_names
-- Id and name of the `:limit` newest runs; an empty name is none.
SELECT id, name FROM runs ORDER BY created_at DESC LIMIT :limit

-- name: runs_meant
-- At most four of the runs that `:text` means: the id of one, else a name, else the beginning of ids.
SELECT id FROM (
    SELECT id, rank() OVER (ORDER BY id = :text DESC, name = :text DESC) AS place
    FROM runs WHERE :text IN (id, name) OR starts_with(id, :text)) AS meant
WHERE place = 1 ORDER BY id LIMIT 4

-- name: run_called
-- A run but `:run` that has `:name` as its name or its id.
SELECT id FROM runs WHERE :name IN (name, id) AND id <> :run LIMIT 1

-- name: rename_run
-- Gives the run `:run` the name `:name`.
UPDATE runs SET name = :name WHERE id = :run

-- name: set_parameters
-- Replaces the parameters of the run `:run`.
UPDATE runs SET parameters = CAST(:parameters AS jsonb) WHERE id = :run

-- name: set_epochs
-- Has the run `:run` ask each sample `:epochs` times.
UPDATE runs SET epochs = :epochs WHERE id = :run

-- name: held_for_update
-- Why the run `:run` is held, which is locked until the transaction ends.
SELECT held FROM runs WHERE id = :run FOR UPDATE

-- name: set_held
-- Has the run `:run` be held for a reason; null: it is not.
UPDATE runs SET held = :held WHERE id = :run

-- name: add_datasets
-- Has the run `:run` ask `:datasets`.
INSERT INTO run_datasets (run_id, dataset_id) SELECT :run, unnest(CAST(:datasets AS integer[]))

-- name: add_models
-- Has the run `:run` ask the models in the JSON list `:rows`, whose queues are listened to if `:open`;
-- returns their keys in this order.
INSERT INTO run_models (run_id, model, prompt_id, spec, queue, open)
SELECT :run, model, prompt_id, spec, queue, :open
FROM json_populate_recordset(NULL::run_models, CAST(:rows AS json))
RETURNING id

-- name: set_spec
-- Replaces what the run `:run` keeps of its model `:model`.
UPDATE run_models SET spec = CAST(:spec AS jsonb) WHERE run_id = :run AND model = :model

-- name: list_runs
-- The `:limit` newest runs, newest first, with the numbers of their models, samples and verdicts.
SELECT run.id AS run_id, run.name, run.origin, run.created_at, run.epochs, run.held,
       run.pruned_completions,
       (SELECT count(*) FROM run_models WHERE run_id = run.id) AS models,
       (SELECT coalesce(sum(dataset.samples), 0)
        FROM run_datasets AS asked JOIN datasets AS dataset ON dataset.id = asked.dataset_id
        WHERE asked.run_id = run.id) AS samples,
       (SELECT count(*)
        FROM verdicts JOIN run_models AS model ON model.id = verdicts.run_model_id
        WHERE model.run_id = run.id) AS verdicts
FROM runs AS run
ORDER BY run.created_at DESC
LIMIT :limit

-- name: look_up_items
-- For each item that is planned: its `number` in the lists, 1-based, the key of its model, its
-- command, whether its verdict or one of a later generation is there, whether its run is held, whether
-- its model is asked in batches now, and whether the item is asked live all the same.
-- Each LIMIT has PostgreSQL look one row up by its whole key. It would join otherwise, and while it
-- knows nothing of a table yet, it joins by the first column of a key and reads every verdict of
-- the model again.
SELECT item.number, model.id AS run_model_id, sample.command,
       coalesce(verdict.done, false) AS done, run.held,
       model.batched, coalesce(batched.live, false) AS live
FROM unnest(CAST(:runs AS text[]), CAST(:models AS text[]), CAST(:keys AS bigint[]),
            CAST(:epochs AS smallint[]), CAST(:generations AS smallint[]))
     WITH ORDINALITY AS item (run, model, key, epoch, generation, number)
CROSS JOIN LATERAL (
    SELECT held IS NOT NULL AS held
    FROM runs WHERE id = item.run AND origin = 'submit' AND epochs >= item.epoch LIMIT 1) AS run
CROSS JOIN LATERAL (
    SELECT id, coalesce(batch_from <= now(), false) AS batched FROM run_models
    WHERE run_id = item.run AND model = item.model LIMIT 1
) AS model
CROSS JOIN LATERAL (
    SELECT command, dataset_id FROM samples WHERE key = item.key LIMIT 1) AS sample
CROSS JOIN LATERAL (
    SELECT FROM run_datasets WHERE run_id = item.run AND dataset_id = sample.dataset_id
    LIMIT 1) AS asked
LEFT JOIN LATERAL (
    SELECT true AS done FROM verdicts
    WHERE run_model_id = model.id AND sample_key = item.key
      AND epoch = item.epoch AND generation >= item.generation
    LIMIT 1) AS verdict ON true
LEFT JOIN LATERAL (
    SELECT true AS planned FROM retried_items
    WHERE run_model_id = model.id AND sample_key = item.key
      AND epoch = item.epoch AND generation = item.generation AND item.generation > 0
    LIMIT 1) AS retry ON true
LEFT JOIN LATERAL (
    SELECT live FROM batched_items
    WHERE model.batched AND run_model_id = model.id AND sample_key = item.key
      AND epoch = item.epoch AND generation = item.generation
    LIMIT 1) AS batched ON true
WHERE item.generation = 0 OR retry.planned

-- name: set_datasets_of_models
-- Sets for each model of the imported run `:run` the datasets that it was put to: those of which it
-- has a verdict about a sample. The first one is soon found, whatever PostgreSQL knows of the
-- tables.
UPDATE run_models AS model SET datasets = ARRAY(
    SELECT asked.dataset_id FROM run_datasets AS asked
    WHERE asked.run_id = model.run_id AND EXISTS (
        SELECT FROM samples AS sample
        CROSS JOIN LATERAL (
            SELECT FROM verdicts
            WHERE run_model_id = model.id AND sample_key = sample.key LIMIT 1) AS verdict
        WHERE sample.dataset_id = asked.dataset_id)
    ORDER BY asked.dataset_id)
WHERE model.run_id = :run

-- name: every_nth_sample
-- The keys of every `:step`-th sample of the dataset `:id`, ascending: where parts of an export
-- begin.
SELECT key FROM (
    SELECT key, row_number() OVER (ORDER BY key) AS number FROM samples WHERE dataset_id = :id
) AS sample
WHERE (number - 1) % :step = 0
ORDER BY key

-- name: held_among
-- Those of `:runs` that are held.
SELECT id FROM runs WHERE id = ANY(:runs) AND held IS NOT NULL

-- name: batched_among
-- The models of `:runs` that are asked in batches now.
SELECT run_id, model FROM run_models WHERE run_id = ANY(:runs) AND batch_from <= now()

-- name: asked_datasets
-- The datasets that the run `:run` asks, by name.
SELECT dataset.id, dataset.name, dataset.fingerprint, dataset.samples, dataset.malicious,
       dataset.source, dataset.licence
FROM datasets AS dataset JOIN run_datasets AS asked ON asked.dataset_id = dataset.id
WHERE asked.run_id = :run ORDER BY dataset.name

-- name: asked_models
-- The models that the run `:run` asks, by name: `dataset_names` are those of its datasets that one was
-- put to, null: all, and `batch_after_s` the seconds after which it is asked in batches, null: never.
SELECT model.id, model.model, model.spec, model.prompt_id,
       CASE WHEN model.datasets IS NOT NULL THEN ARRAY(
           SELECT dataset.name
           FROM run_datasets AS asked JOIN datasets AS dataset ON dataset.id = asked.dataset_id
           WHERE asked.run_id = :run AND asked.dataset_id = ANY(model.datasets))
       END AS dataset_names,
       -- The clocks of the command and of the store may differ.
       CASE WHEN model.batch_from IS NOT NULL THEN
           greatest(0, extract(epoch FROM model.batch_from - run.created_at))::float8
       END AS batch_after_s
FROM run_models AS model JOIN runs AS run ON run.id = model.run_id
WHERE model.run_id = :run ORDER BY model.model

-- name: assignment
-- What a worker needs of the model `:model` of the run `:run`; no row when the run was imported.
SELECT model.spec, run.parameters, prompt.name, prompt.system, prompt.template
FROM run_models AS model JOIN runs AS run ON run.id = model.run_id
JOIN prompts AS prompt ON prompt.id = coalesce(model.prompt_id, run.prompt_id)
WHERE model.run_id = :run AND model.model = :model

-- name: parameters_of_runs
-- The parameters of `:runs`; no row of one that is gone or imported.
SELECT id, parameters FROM runs WHERE id = ANY(:runs) AND parameters IS NOT NULL

-- name: ask_in_batches
-- Has `:models` of the run `:run` asked in batches from `:after_s` seconds from now on.
UPDATE run_models SET batch_from = now() + make_interval(secs => :after_s)
WHERE run_id = :run AND model = ANY(:models)

-- name: open_queues
-- The queues of open models, whose items are in them, and whether their runs are held.
SELECT model.queue, model.run_id, model.model, model.spec, run.held IS NOT NULL AS held
FROM run_models AS model JOIN runs AS run ON run.id = model.run_id
WHERE model.open

-- name: mark_simulated
-- Notes of `:models` of the run `:run` that answers came from the simulator.
UPDATE run_models SET spec = spec || '{"simulated": true}'
WHERE run_id = :run AND model = ANY(:models)
