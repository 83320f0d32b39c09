-- The verdicts of one model of a run, counted: `db.counting`, `db.progress`, `db.runs` and
-- `db.verdict_reader` read these.
--
-- `:model` is the model's `run_models.id`. `{counts}` is the condition that a row of `verdict`
-- counts: `every`, `newest` or `superseded`. Each statement reads the primary key's index from end
-- to end and, where it needs the samples, merges them in. Sums are exact integers, so no result
-- depends on the order of rows.

-- fragment: every
-- Condition for a run without retries: every verdict counts.
TRUE

-- fragment: superseded
-- Condition that a retry took the place of `verdict`; its last line leads to the index of retries.
EXISTS (
    SELECT FROM verdicts AS later
    WHERE later.run_model_id = verdict.run_model_id AND later.sample_key = verdict.sample_key
      AND later.epoch = verdict.epoch AND later.generation > verdict.generation
      AND later.generation > 0)

-- fragment: newest
-- Condition that `verdict` is of the newest generation of its item.
NOT {superseded}

-- fragment: answered
-- Condition that the call brought an answer, be it empty: the code holds no error class.
code < 100

-- fragment: row_hash
-- Hash of a verdict's key within its model and of its result, found without a look at samples: the
-- last argument holds four small numbers of 16 bits each.
hashint8extended(sample_key, epoch * 281474976710656 + generation * 4294967296
                             + code * 65536 + parser_version)

-- name: identify_verdicts
-- All verdicts, by what identifies them together with their items.
SELECT dataset.name AS dataset, verdict.code, verdict.parser_version, count(*) AS verdicts,
       sum(hashtextextended(sample.sample_id,
                            (verdict.epoch::int << 16) + verdict.generation))::text AS digest
FROM verdicts AS verdict
JOIN samples AS sample ON sample.key = verdict.sample_key
JOIN datasets AS dataset ON dataset.id = sample.dataset_id
WHERE verdict.run_model_id = :model AND {counts}
GROUP BY dataset.name, verdict.code, verdict.parser_version

-- name: hash_verdicts
-- One row: how many verdicts there are, and the sum of their hashes (null without any).
SELECT count(*) AS verdicts, sum({row_hash}) AS row_hashes
FROM verdicts AS verdict
WHERE verdict.run_model_id = :model AND {counts}

-- fragment: spent
-- Sums of tokens and cost (null where no verdict has any), and how many verdicts have a cost.
sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens,
sum(reasoning_tokens) AS reasoning_tokens, sum(cache_read_tokens) AS cache_read_tokens,
sum(cache_write_tokens) AS cache_write_tokens, sum(cost_usd) AS cost_usd,
count(cost_usd) AS priced

-- name: add_up_spent
-- One row: the verdicts, their tokens and their cost.
SELECT count(*) AS verdicts, {spent}
FROM verdicts AS verdict
WHERE verdict.run_model_id = :model AND {counts}

-- fragment: time_of(part)
-- Milliseconds of a part of the time; null of a call that failed: it took no time to answer.
CASE WHEN {answered} THEN {part}_ms END AS {part}

-- fragment: distribution(part)
-- Number of times, their sum in microseconds, and their quantiles at `:fractions`.
count({part}) AS {part}_times, sum(({part} * 1000)::bigint) AS {part}_micros,
percentile_cont(CAST(:fractions AS float8[])) WITHIN GROUP (ORDER BY {part}) AS {part}_quantiles

-- name: add_up_totals
-- One row: what `hash_verdicts` and `add_up_spent` return, and the distribution of each part of the
-- time.
SELECT count(*) AS verdicts, sum(row_hash) AS row_hashes, {spent}, {distribution(service)},
       {distribution(queue)}, {distribution(limiter)}, {distribution(backoff)},
       {distribution(total)}
FROM (
    SELECT {row_hash} AS row_hash, input_tokens, output_tokens, reasoning_tokens,
           cache_read_tokens, cache_write_tokens, cost_usd, {time_of(service)}, {time_of(queue)},
           {time_of(limiter)}, {time_of(backoff)}, {time_of(total)}
    FROM verdicts AS verdict
    WHERE verdict.run_model_id = :model AND {counts}
    OFFSET 0  -- else each mention of a time asks again whether there was an answer
) AS counted

-- name: count_progress
-- Verdicts of each code, their cost (null without any), those stored within `:window_s` seconds, and
-- the seconds since the first of these.
SELECT code, count(*) AS verdicts, sum(cost_usd) AS cost_usd,
       count(*) FILTER (WHERE stored_at > now() - make_interval(secs => :window_s)) AS recent,
       extract(epoch FROM now() - min(stored_at) FILTER (
           WHERE stored_at > now() - make_interval(secs => :window_s)))::float AS recent_s
FROM verdicts AS verdict
WHERE verdict.run_model_id = :model AND {counts}
GROUP BY code

-- name: count_unanswered
-- Verdicts of each code whose call brought no answer.
SELECT code, count(*) AS verdicts
FROM verdicts AS verdict
WHERE verdict.run_model_id = :model AND NOT {answered} AND {counts}
GROUP BY code
