"""The statements that count the verdicts of one model of a run.

Each reads the primary key's index from end to end and, where it needs the samples, merges them in.
Sums are exact integers, so that no result depends on the order of rows. `db.per_model` fills in
`:model` and `{counts}`.
"""

# ruff: noqa: S608  the statements are put together from nothing but this module

from aegish_dist.core.sample import Target
from aegish_dist.core.tally import CONFIDENCE_BINS
from aegish_dist.db.codes import ANSWERED
from aegish_dist.db.quantiles import quantiles_sql, sample_statement

PARTS = ("service", "queue", "limiter", "backoff", "total")

_MALICIOUS = f"sample.target = '{Target.MALICIOUS}'"
"""Cheaper to group by than a word."""

_DIGEST = """
    sum(hashtextextended(sample.sample_id, (verdict.epoch::int << 16) + verdict.generation))
"""
"""Tells sets of items apart."""

_VERDICTS_WITH_SAMPLES = """
    FROM verdicts AS verdict JOIN samples AS sample ON sample.key = verdict.sample_key
    WHERE verdict.run_model_id = :model AND {counts}
"""

_ROW_HASH = """
    hashint8extended(sample_key, epoch * 281474976710656 + generation * 4294967296
                                 + code * 65536 + parser_version)
"""
"""Tells verdicts of one model and store apart without a look at samples: the last argument holds
four small numbers of 16 bits each."""

CONTENT = f"""
    SELECT count(*) AS verdicts, sum({_ROW_HASH}) AS row_hashes
    FROM verdicts AS verdict WHERE verdict.run_model_id = :model AND {{counts}}
"""  # nosec B608 # constants of ours

_POWERS = ", ".join(
    f"sum(verdicts * round({power} * 1e6)::bigint)::bigint"
    for power in ("c", "c ^ 2", "c ^ 4", "(1 - c) ^ 2", "(1 - c) ^ 4")
)

COUNTS = f"""
    WITH counted AS MATERIALIZED (
        SELECT {_MALICIOUS} AS malicious, sample.category, sample.cluster, sample.dataset_id,
               verdict.code, verdict.parser_version, verdict.confidence, count(*) AS verdicts,
               {_DIGEST} AS digest
        {_VERDICTS_WITH_SAMPLES}
        GROUP BY GROUPING SETS (
            (malicious, sample.category, sample.cluster, sample.dataset_id, verdict.code,
             verdict.parser_version),
            (malicious, verdict.code, verdict.confidence))
    )
    SELECT 'cell' AS kind, malicious, category, cluster, array_agg(code) AS codes,
           array_agg(verdicts) AS numbers, NULL::int AS parser_version, NULL AS dataset,
           NULL::numeric AS digest, NULL::int AS bin
    FROM counted WHERE dataset_id IS NOT NULL
    GROUP BY malicious, category, cluster
    UNION ALL
    SELECT 'stated', malicious, NULL, NULL, ARRAY[code], ARRAY[sum(verdicts)::bigint, {_POWERS}],
           NULL, NULL, NULL, least(floor(c * {CONFIDENCE_BINS})::int, {CONFIDENCE_BINS - 1}) AS bin
    FROM (
        SELECT malicious, code, verdicts, greatest(confidence, 1e-9) AS c FROM counted
        WHERE dataset_id IS NULL AND confidence IS NOT NULL
    ) AS stated
    GROUP BY malicious, code, bin
    UNION ALL
    SELECT 'share', NULL, NULL, NULL, ARRAY[code], ARRAY[sum(verdicts)::bigint], parser_version,
           dataset.name, sum(digest), NULL
    FROM counted JOIN datasets AS dataset ON dataset.id = counted.dataset_id
    GROUP BY code, parser_version, dataset.name
"""  # nosec B608 # constants of ours
"""Verdicts by stratum, of each code; those with a confidence by bin, their number and the sums of
its powers; and all by what identifies them.

A confidence below 1e-9 adds nothing to sums in 1e-6, but its powers would underflow.
"""

CELLS_OF_MANY_EPOCHS = f"""
    SELECT {_MALICIOUS}, category, cluster, item.codes, count(*) AS items_alike
    FROM (
        SELECT verdict.sample_key, array_agg(verdict.code ORDER BY verdict.code) AS codes
        FROM verdicts AS verdict
        WHERE verdict.run_model_id = :model AND {{counts}}
        GROUP BY 1
    ) AS item
    JOIN samples AS sample ON sample.key = item.sample_key
    GROUP BY 1, 2, 3, 4
"""  # nosec B608 # constants of ours

_SPENT = """
    sum(input_tokens), sum(output_tokens), sum(reasoning_tokens), sum(cache_read_tokens),
    sum(cache_write_tokens), sum(cost_usd), count(cost_usd)
"""
SPENT = f"""
    SELECT {_SPENT}, count(*) AS verdicts
    FROM verdicts AS verdict WHERE run_model_id = :model AND {{counts}}
"""  # nosec B608 # constants of ours

SAMPLED = sample_statement([f"{part}_ms" for part in PARTS])

_TIMES = ", ".join(f"CASE WHEN {ANSWERED} THEN {part}_ms END AS {part}" for part in PARTS)
_DISTRIBUTION = ", ".join(
    f"count({part}), sum(({part} * 1000)::bigint), {quantiles_sql(part)}" for part in PARTS
)
SPENT_AND_LATENCY = f"""
    SELECT count(*) AS verdicts, sum(row_hash) AS row_hashes, {_SPENT}, {_DISTRIBUTION}
    FROM (
        SELECT {_ROW_HASH} AS row_hash, input_tokens, output_tokens, reasoning_tokens,
               cache_read_tokens, cache_write_tokens, cost_usd, {_TIMES}
        FROM verdicts AS verdict WHERE verdict.run_model_id = :model AND {{counts}}
        OFFSET 0  -- else each mention of a time asks again whether there was an answer
    ) AS counted
"""  # nosec B608 # constants of ours
"""What `CONTENT` tells; what was used and paid; then for each part of the time number,
microseconds, and what `db.quantiles` asks for. A call that failed took no time to answer."""
