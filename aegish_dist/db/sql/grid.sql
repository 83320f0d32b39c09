-- The verdicts of a run about some of its commands, for the grid of a report: `db.verdict_grid`
-- reads these. Each is about the samples of the dataset `:dataset` from key `:first` up to `:end`.

-- name: grid_commands
-- The samples in order, with the labels that an overlay gives them.
{labelled_samples}
ORDER BY sample.key

-- fragment: whole(number)
-- A number of the grid: the nearest integer that JavaScript knows exactly, -1 where it is unknown.
CASE WHEN verdict.{number} IS NULL THEN -1
     ELSE least(round(verdict.{number}), 9007199254740991)::bigint END

-- fragment: grid_numbers
-- The columns of numbers, keys first.
verdict.run_model_id, verdict.sample_key, verdict.epoch, verdict.code, {whole(permille)},
{whole(service_ms)}, {whole(queue_ms)}, {whole(limiter_ms)}, {whole(backoff_ms)},
{whole(input_tokens)}, {whole(output_tokens)}, {whole(reasoning_tokens)},
{whole(cache_read_tokens)}, {whole(nano_usd)}, verdict.attempts, verdict.generation,
coalesce(floor(extract(epoch FROM verdict.created_at))::bigint, -1) AS created_s

-- fragment: grid_source
-- The verdicts of the models `:models` about the samples, with two numbers in the units of the grid.
(SELECT *, confidence * 1000 AS permille, cost_usd * 1e9 AS nano_usd FROM verdicts) AS verdict
JOIN samples AS sample
  ON sample.key = verdict.sample_key AND sample.dataset_id = :dataset
 AND sample.key >= :first AND sample.key < :end
 AND verdict.run_model_id = ANY(:models)
 AND verdict.sample_key >= :first AND verdict.sample_key < :end

-- fragment: cut(content)
-- A text, or the first `:chars` characters of it.
left(verdict.{content}, :chars)

-- name: grid_verdicts
-- The verdicts as numbers.
SELECT {grid_numbers} FROM {grid_source} WHERE {counts}

-- name: grid_verdicts_with_texts
-- The same with texts, and before them the length of a completion that is cut: an escaped
-- character, five as stored, counts as one.
SELECT {grid_numbers},
       CASE WHEN char_length(verdict.completion) > :chars THEN
           char_length(verdict.completion) - 4 * (
               char_length(verdict.completion)
               - char_length(replace(verdict.completion, :escape, '')))
       END AS length,
       {cut(completion)}, {cut(reason)}, {cut(refusal)}, {cut(stop_reason)},
       {cut(model_returned)}, {cut(upstream)}, {cut(request_id)}, verdict.worker
FROM {grid_source}
WHERE {counts}

-- name: grid_attempts
-- The failed attempts before all verdicts about these samples, those of other datasets among them.
SELECT run_model_id, sample_key, epoch, generation, attempt, error_class, status, retry_after_s,
       left(message, :chars) AS message, floor(extract(epoch FROM at))::bigint AS at_s
FROM call_errors
WHERE run_model_id = ANY(:models) AND sample_key >= :first AND sample_key < :end
ORDER BY sample_key, run_model_id, epoch, generation, attempt
