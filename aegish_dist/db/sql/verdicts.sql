-- The verdicts of a run: `db.verdict_reader`, `db.columns`, `db.runs`, `db.verdicts` and
-- `pipeline.verdicts` use these.
--
-- Each reading statement is about the samples of the dataset `:dataset` whose keys lie from `:first`
-- up to `:end`, so that a list can end where enough is found and a part fits into memory.
-- `:malicious_marks` and `:harmless_marks` hold at position code + 1 how the rule set judges a
-- verdict of that code: 1 correct, -1 wrong, 0 unscored. A condition whose value is null holds.

-- name: settings_for_listing
-- Settings of this transaction alone: a part has few samples, which is what hashing is fast for.
SELECT set_config('enable_hashjoin', 'on', true) AS hash_join

-- fragment: labelled_samples
-- The samples of the part with the labels that an overlay gives them; those that it excludes stay.
-- `:changed_keys`, `:changed_targets` (null: excluded) and `:changed_categories` are its changes.
SELECT stored.key, stored.sample_id, stored.command, stored.cluster, stored.details,
       stored.target AS stored_target, stored.category AS stored_category,
       coalesce(change.target, stored.target) AS target,
       CASE WHEN change.target IS NULL THEN stored.category ELSE change.category END AS category,
       coalesce(change.target, stored.target) = 'malicious' AS malicious,
       change.key IS NOT NULL AND change.target IS NULL AS excluded
FROM samples AS stored
LEFT JOIN unnest(CAST(:changed_keys AS bigint[]), CAST(:changed_targets AS text[]),
                 CAST(:changed_categories AS text[])) AS change (key, target, category)
     ON change.key = stored.key
WHERE stored.dataset_id = :dataset AND stored.key >= :first AND stored.key < :end

-- fragment: mark
-- How the rule set judges `verdict` about `sample`.
CASE WHEN sample.excluded THEN 0
     WHEN sample.malicious THEN (CAST(:malicious_marks AS smallint[]))[verdict.code + 1]
     ELSE (CAST(:harmless_marks AS smallint[]))[verdict.code + 1] END

-- fragment: mark_before
-- The same under another rule set and overlay: the names of what it binds begin with `before_`.
CASE WHEN sample.excluded_before THEN 0
     WHEN sample.malicious_before THEN
         (CAST(:before_malicious_marks AS smallint[]))[verdict.code + 1]
     ELSE (CAST(:before_harmless_marks AS smallint[]))[verdict.code + 1] END

-- fragment: chosen
-- Conditions on the answers of all models about a sample; `balance` is above 0 where the model got
-- it right, and below where it got it wrong.
count(*) FILTER (WHERE balance < 0 AND run_model_id = ANY(:missed))
    = cardinality(CAST(:missed AS integer[]))
AND (NOT :disputed
     OR bool_or(balance > 0 AND run_model_id = ANY(:compared))
        AND bool_or(balance < 0 AND run_model_id = ANY(:compared)))

-- fragment: failed_attempts
-- The failed attempts before `verdict` as JSON, null without any.
(SELECT json_agg(
     json_build_object('attempt', attempt, 'error_class', error_class, 'status', status,
                       'retry_after_s', retry_after_s, 'message', message, 'at', at)
     ORDER BY attempt)
 FROM call_errors AS failed
 WHERE failed.run_model_id = verdict.run_model_id AND failed.sample_key = verdict.sample_key
   AND failed.epoch = verdict.epoch AND failed.generation = verdict.generation)

-- name: choose_commands
-- Keys of the samples that every one of the models `:missed` got wrong in most of its scored
-- epochs, and if `:disputed` that one of the models `:compared` got right and another one wrong.
WITH sample AS MATERIALIZED (
    SELECT key, malicious, excluded FROM (
        {labelled_samples}
    ) AS labelled
)
SELECT answer.sample_key
FROM (
    SELECT verdict.sample_key, verdict.run_model_id, sum({mark}) AS balance
    FROM verdicts AS verdict JOIN sample ON sample.key = verdict.sample_key
    WHERE verdict.run_model_id = ANY(:models)
      AND verdict.sample_key >= :first AND verdict.sample_key < :end AND {counts}
    GROUP BY verdict.run_model_id, verdict.sample_key
) AS answer
GROUP BY answer.sample_key
HAVING {chosen}

-- name: choose_commands_of_one_epoch
-- The same for a run of one epoch, in two thirds of the time.
WITH sample AS MATERIALIZED (
    SELECT key, malicious, excluded FROM (
        {labelled_samples}
    ) AS labelled
)
SELECT answer.sample_key
FROM (
    SELECT verdict.sample_key, verdict.run_model_id, {mark} AS balance
    FROM verdicts AS verdict JOIN sample ON sample.key = verdict.sample_key
    WHERE verdict.run_model_id = ANY(:models)
      AND verdict.sample_key >= :first AND verdict.sample_key < :end AND {counts}
    OFFSET 0  -- else each mention of a balance looks the mark up again
) AS answer
GROUP BY answer.sample_key
HAVING {chosen}

-- name: choose_inconsistent
-- Pairs of model and sample whose epochs state different actions.
SELECT verdict.run_model_id, verdict.sample_key
FROM verdicts AS verdict JOIN samples AS sample ON sample.key = verdict.sample_key
WHERE verdict.run_model_id = ANY(:models) AND sample.dataset_id = :dataset
  AND verdict.sample_key >= :first AND verdict.sample_key < :end
  AND sample.key >= :first AND sample.key < :end
  AND verdict.code / 10 % 10 = ANY(:actions) AND {counts}
GROUP BY verdict.run_model_id, verdict.sample_key
HAVING min(verdict.code / 10 % 10) < max(verdict.code / 10 % 10)

-- name: read_verdicts
-- The first `:limit` verdicts that meet the conditions, by sample, model and epoch, each beside
-- `matched`, the number of all that do; one row of that number alone where none does. `:keys` and
-- `:inconsistent_models` with `:inconsistent_keys` are what the statements above have chosen.
WITH sample AS MATERIALIZED (
    SELECT labelled.key, sample_id, command, labelled.target, category, cluster, malicious,
           excluded, command ILIKE CAST(:pattern AS text) AS has_text,
           coalesce(before.target, stored_target) = 'malicious' AS malicious_before,
           before.key IS NOT NULL AND before.target IS NULL AS excluded_before
    FROM (
        {labelled_samples}
    ) AS labelled
    LEFT JOIN unnest(CAST(:before_changed_keys AS bigint[]), CAST(:before_changed_targets AS text[]))
        AS before (key, target) ON before.key = labelled.key
    WHERE (CAST(:targets AS text[]) IS NULL OR labelled.target = ANY(:targets))
      AND (CAST(:categories AS text[]) IS NULL OR category = ANY(:categories))
      AND (CAST(:keys AS bigint[]) IS NULL OR labelled.key = ANY(:keys))
),
matching AS MATERIALIZED (
    SELECT verdict.run_model_id, verdict.sample_key, verdict.epoch, verdict.generation
    FROM verdicts AS verdict JOIN sample ON sample.key = verdict.sample_key
    WHERE verdict.run_model_id = ANY(:models)
      AND verdict.sample_key >= :first AND verdict.sample_key < :end AND {counts}
      AND (CAST(:codes AS smallint[]) IS NULL OR verdict.code = ANY(:codes))
      AND (CAST(:marks AS smallint[]) IS NULL OR {mark} = ANY(:marks))
      AND (CAST(:before_malicious_marks AS smallint[]) IS NULL OR {mark} <> {mark_before})
      AND (CAST(:inconsistent_keys AS bigint[]) IS NULL
           OR (verdict.run_model_id, verdict.sample_key) IN (
               SELECT * FROM unnest(CAST(:inconsistent_models AS integer[]),
                                    CAST(:inconsistent_keys AS bigint[]))))
      AND (CAST(:pattern AS text) IS NULL OR sample.has_text
           OR verdict.completion ILIKE :pattern OR verdict.reason ILIKE :pattern)
)
SELECT total.matched, shown.place, sample.sample_id, sample.command, sample.target,
       sample.category, sample.cluster, verdict.run_model_id, verdict.code,
       {mark} AS mark, {mark_before} AS mark_before, {columns}
FROM (SELECT count(*) AS matched FROM matching) AS total
LEFT JOIN (
    SELECT *, array_position(CAST(:models AS integer[]), run_model_id) AS place FROM matching
    ORDER BY sample_key, place, epoch, generation LIMIT :limit
) AS shown ON true
LEFT JOIN verdicts AS verdict
    ON verdict.run_model_id = shown.run_model_id AND verdict.sample_key = shown.sample_key
   AND verdict.epoch = shown.epoch AND verdict.generation = shown.generation
LEFT JOIN sample ON sample.key = shown.sample_key
ORDER BY shown.sample_key, shown.place, shown.epoch, shown.generation

-- name: read_texts
-- Texts of the verdicts of the models `:models` about the samples `:samples`, cut to `:chars`
-- characters, with the length of a cut completion, and the failed attempts before each verdict.
SELECT verdict.run_model_id, verdict.sample_key, verdict.epoch, {columns},
       CASE WHEN char_length(verdict.completion) > :chars
            THEN char_length(verdict.completion) END AS length,
       (SELECT json_agg(
            json_build_object(
                'attempt', attempt, 'error_class', error_class, 'status', coalesce(status, -1),
                'retry_after_s', retry_after_s, 'message', left(message, :chars),
                'at_s', floor(extract(epoch FROM at)))
            ORDER BY attempt)
        FROM call_errors AS failed
        WHERE failed.run_model_id = verdict.run_model_id
          AND failed.sample_key = verdict.sample_key AND failed.epoch = verdict.epoch
          AND failed.generation = verdict.generation) AS attempts
FROM verdicts AS verdict
WHERE verdict.run_model_id = ANY(:models) AND verdict.sample_key = ANY(:samples) AND {counts}
ORDER BY verdict.sample_key, verdict.run_model_id, verdict.epoch

-- name: export_verdicts
-- All that a record keeps of the verdicts of the model `:key`, every generation, in order.
SELECT {columns}
FROM verdicts AS verdict
JOIN (
    {labelled_samples}
) AS sample ON sample.key = verdict.sample_key
LEFT JOIN (
    SELECT sample_key, epoch, generation,
           json_agg(json_build_object({attempt}) ORDER BY attempt) AS errors
    FROM call_errors
    WHERE run_model_id = :key AND sample_key >= :first AND sample_key < :end
    GROUP BY 1, 2, 3
) AS failed USING (sample_key, epoch, generation)
WHERE verdict.run_model_id = :key AND sample_key >= :first AND sample_key < :end
ORDER BY sample_key, epoch, generation

-- name: list_categories
-- The categories of the samples of the run `:run`, sorted.
SELECT DISTINCT sample.category
FROM run_datasets AS asked JOIN samples AS sample ON sample.dataset_id = asked.dataset_id
WHERE asked.run_id = :run AND sample.category IS NOT NULL ORDER BY sample.category

-- name: find_named_samples
-- Samples of the run `:run` that a text names, the surest first: `rank` 0 where it is the sample id
-- or the command, 1 where it begins the id, 2 where it stands in the command, in any letter case.
-- `:start` and `:pattern` are the text as patterns of LIKE.
SELECT sample.key, sample.sample_id, sample.command, sample.target, sample.category,
       sample.cluster, sample.details, dataset.id AS dataset_id, dataset.name AS dataset,
       CASE WHEN :name IN (sample.sample_id, sample.command) THEN 0
            WHEN sample.sample_id LIKE :start THEN 1 ELSE 2 END AS rank
FROM run_datasets AS asked
JOIN datasets AS dataset ON dataset.id = asked.dataset_id
JOIN samples AS sample ON sample.dataset_id = asked.dataset_id
WHERE asked.run_id = :run
  AND (CAST(:dataset_name AS text) IS NULL OR dataset.name = :dataset_name)
  AND (sample.sample_id = :name OR sample.command = :name OR sample.sample_id LIKE :start
       OR sample.command ILIKE :pattern)
ORDER BY rank, dataset.name, sample.key
LIMIT :limit

-- name: run_with_sample
-- The newest run but `:run` that asks a sample of the id or command `:name`.
SELECT run.id
FROM samples AS sample
JOIN run_datasets AS asked ON asked.dataset_id = sample.dataset_id
JOIN runs AS run ON run.id = asked.run_id
WHERE :name IN (sample.sample_id, sample.command) AND run.id <> :run
ORDER BY run.created_at DESC
LIMIT 1

-- name: has_answers
-- Whether a call to the model `:model` has been answered, in whatever generation.
SELECT EXISTS (SELECT FROM verdicts WHERE run_model_id = :model AND error_class IS NULL)

-- name: next_answers
-- The next `:limit` completions of a model behind an item, in order, with their commands, and locked
-- if `{lock}` says so.
SELECT verdict.sample_key, verdict.epoch, verdict.generation,
       (SELECT command FROM samples WHERE key = verdict.sample_key) AS command,
       verdict.completion, verdict.outcome, verdict.reason, verdict.confidence,
       verdict.parser_version, verdict.suspicion
FROM verdicts AS verdict
WHERE verdict.run_model_id = :run_model_id
  AND (verdict.sample_key, verdict.epoch, verdict.generation) > (:sample_key, :epoch, :generation)
  AND verdict.completion IS NOT NULL AND verdict.error_class IS NULL
ORDER BY verdict.sample_key, verdict.epoch, verdict.generation
LIMIT :limit
{lock}

-- name: write_readings
-- Replaces the parsed columns of the verdicts in the JSON list `:rows`. The verdicts are locked, so
-- the order of the updates does not matter.
UPDATE verdicts
SET outcome = reading.outcome, reason = reading.reason, confidence = reading.confidence,
    parser_version = reading.parser_version, suspicion = reading.suspicion
FROM json_populate_recordset(NULL::verdicts, CAST(:rows AS json)) AS reading
WHERE verdicts.run_model_id = reading.run_model_id AND verdicts.sample_key = reading.sample_key
  AND verdicts.epoch = reading.epoch AND verdicts.generation = reading.generation

-- name: insert_verdicts
-- Inserts verdicts from a JSON list of rows by column, which costs a tenth of single rows; those that
-- are there already stay. Returns the keys of the inserted ones.
INSERT INTO verdicts ({of_verdicts})
SELECT {of_verdicts} FROM json_populate_recordset(NULL::verdicts, CAST(:rows AS json))
ON CONFLICT DO NOTHING
RETURNING run_model_id, sample_key, epoch, generation

-- name: insert_call_errors
-- Inserts failed attempts likewise.
INSERT INTO call_errors ({of_errors})
SELECT {of_errors} FROM json_populate_recordset(NULL::call_errors, CAST(:rows AS json))
ON CONFLICT DO NOTHING

-- name: add_reading_death
-- Stores that the worker `:worker` died while it read the answer of an item; once, if said twice.
-- The model is locked until the transaction ends: two that count the deaths of an item at the same
-- time would each miss the other's.
WITH model AS (SELECT id FROM run_models WHERE id = :run_model_id FOR NO KEY UPDATE)
INSERT INTO reading_deaths (run_model_id, sample_key, epoch, generation, worker)
SELECT id, :sample_key, :epoch, :generation, :worker FROM model
ON CONFLICT DO NOTHING

-- name: count_reading_deaths
-- How many workers died while they read the answer of an item.
SELECT count(*) FROM reading_deaths
WHERE run_model_id = :run_model_id AND sample_key = :sample_key AND epoch = :epoch
  AND generation = :generation
