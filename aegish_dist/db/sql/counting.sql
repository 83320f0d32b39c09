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

-- name: count_verdicts
-- One row of three JSON lists: `cells`, the verdicts by stratum and code; `stated`, those with a
-- confidence by bin, with the sums of its powers in units of 1e-6; `alike`, all verdicts by what
-- identifies them. A confidence below 1e-9 adds nothing to such sums, but its powers underflow.
-- Labels are those of an overlay; what it excludes is in `alike` alone.
WITH counted AS MATERIALIZED (
    SELECT sample.target = 'malicious' AS malicious, sample.category, sample.cluster,
           sample.excluded, sample.dataset_id, verdict.code, verdict.parser_version, verdict.confidence,
           count(*) AS verdicts,
           sum(hashtextextended(sample.sample_id,
                                (verdict.epoch::int << 16) + verdict.generation)) AS digest
    FROM verdicts AS verdict JOIN {effective_samples} AS sample ON sample.key = verdict.sample_key
    WHERE verdict.run_model_id = :model AND {counts}
    GROUP BY GROUPING SETS (
        (malicious, sample.category, sample.cluster, sample.excluded, sample.dataset_id,
         verdict.code, verdict.parser_version),
        (malicious, sample.excluded, verdict.code, verdict.confidence))
),
cells AS (
    SELECT malicious, category, cluster, array_agg(code) AS codes, array_agg(verdicts) AS verdicts
    FROM counted
    WHERE dataset_id IS NOT NULL AND NOT excluded
    GROUP BY malicious, category, cluster
),
stated AS (
    SELECT malicious, code, least(floor(c * :bins)::int, :bins - 1) AS bin,
           sum(verdicts)::bigint AS verdicts,
           sum(verdicts * round(c * 1e6)::bigint)::bigint AS sum_c,
           sum(verdicts * round(c ^ 2 * 1e6)::bigint)::bigint AS sum_c2,
           sum(verdicts * round(c ^ 4 * 1e6)::bigint)::bigint AS sum_c4,
           sum(verdicts * round((1 - c) ^ 2 * 1e6)::bigint)::bigint AS sum_d2,
           sum(verdicts * round((1 - c) ^ 4 * 1e6)::bigint)::bigint AS sum_d4
    FROM (
        SELECT malicious, code, verdicts, greatest(confidence, 1e-9) AS c FROM counted
        WHERE dataset_id IS NULL AND confidence IS NOT NULL AND NOT excluded
    ) AS known
    GROUP BY malicious, code, bin
),
alike AS (
    SELECT dataset.name AS dataset, code, parser_version, sum(verdicts)::bigint AS verdicts,
           sum(digest)::text AS digest
    FROM counted JOIN datasets AS dataset ON dataset.id = counted.dataset_id
    GROUP BY dataset.name, code, parser_version
)
SELECT (SELECT coalesce(json_agg(cells), '[]') FROM cells) AS cells,
       (SELECT coalesce(json_agg(stated), '[]') FROM stated) AS stated,
       (SELECT coalesce(json_agg(alike), '[]') FROM alike) AS alike

-- name: count_items_of_many_epochs
-- Items by stratum, as an overlay labels them, and by the codes of their epochs, in ascending order.
SELECT sample.target = 'malicious' AS malicious, sample.category, sample.cluster, item.codes,
       count(*) AS items
FROM (
    SELECT verdict.sample_key, array_agg(verdict.code ORDER BY verdict.code) AS codes
    FROM verdicts AS verdict
    WHERE verdict.run_model_id = :model AND {counts}
    GROUP BY verdict.sample_key
) AS item
JOIN {effective_samples} AS sample ON sample.key = item.sample_key
WHERE NOT sample.excluded
GROUP BY malicious, sample.category, sample.cluster, item.codes

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
