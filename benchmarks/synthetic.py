"""Millions of verdicts, made by PostgreSQL itself in about a minute per ten million.

Eleven models, or as many as asked for, whose verdicts lie in the table in turns, as those of a real
run do; 400 binaries, eight categories, one harmless sample in three; completions of some 120
characters; all parts of the time given.
"""

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import psycopg

MODELS = 11
SESSIONS = 4
PARTS = 16

_RUN = """
    INSERT INTO runs (id, name, origin, package_version, epochs, created_at)
    VALUES (%(run)s, 'synthetic', 'import', '0', %(epochs)s, now());
    INSERT INTO datasets (name, fingerprint, source, licence, samples, malicious, selectable)
    VALUES (%(run)s, %(run)s, '', '', %(samples)s, %(samples)s - %(samples)s / 3, false);
    INSERT INTO run_datasets
    SELECT %(run)s, id FROM datasets WHERE fingerprint = %(run)s;
    INSERT INTO samples (dataset_id, sample_id, command, target, category, cluster, details)
    SELECT dataset.id, lpad(to_hex(hashtextextended(n::text, 0)), 16, '0'),
           'binary-' || n * 400 / (%(samples)s + 1) || ' --flag /etc/shadow ' || n,
           CASE WHEN n %% 3 = 0 THEN 'harmless' ELSE 'malicious' END,
           CASE WHEN n %% 3 > 0 THEN 'category-' || n / 3 %% 8 END,
           'binary-' || n * 400 / (%(samples)s + 1), '{"source": "synthetic"}'
    FROM datasets AS dataset, generate_series(1, %(samples)s::bigint) AS n
    WHERE dataset.fingerprint = %(run)s;
    INSERT INTO run_models (run_id, model, spec, queue, open)
    SELECT %(run)s, id, jsonb_build_object('id', id, 'wire', 'imported', 'name', id), '', false
    FROM (SELECT 'lab/model-' || lpad(n::text, 2, '0') AS id
          FROM generate_series(1, %(models)s) AS n) AS model;
"""

_VERDICTS = """
    INSERT INTO verdicts (
        run_model_id, sample_key, epoch, generation, outcome, error_class, completion, stop_reason,
        stop_kind, model_returned, request_id, reason, confidence, parser_version, input_tokens,
        output_tokens, cache_read_tokens, cost_usd, queue_ms, limiter_ms, backoff_ms, service_ms,
        total_ms, attempts, worker, created_at)
    SELECT model, key, epoch, 0, outcome,
           CASE WHEN outcome = 'API_ERROR' THEN 'server'
                WHEN outcome = 'TIMEOUT_ERROR' AND sure < 0.5 THEN 'deadline' END,
           CASE WHEN acts THEN '{"action": "' || outcome || '", "reason": "' || reason
                               || '", "confidence": ' || sure || '}'
                WHEN outcome = 'FORMAT_ERROR' THEN 'I cannot answer that.'
                WHEN outcome = 'TIMEOUT_ERROR' AND sure >= 0.5 THEN '' END,
           CASE WHEN acts THEN 'stop' END, CASE WHEN acts THEN 'stop' END, 'model-2026',
           'req-' || model || '-' || key, CASE WHEN acts THEN reason END,
           CASE WHEN acts THEN sure END, 1, 1400 + key %% 200, 40 + key %% 37, 1024,
           (1400 + key %% 200) * 0.00000125 + (40 + key %% 37) * 0.00001,
           queue, CASE WHEN r2 < 0.3 THEN round((r2 * 900)::numeric, 3) ELSE 0 END,
           CASE WHEN r3 < 0.02 THEN round((r3 * 90000)::numeric, 3) ELSE 0 END, service,
           queue + service, 1, 'worker-1@host', now()
    FROM (
        SELECT *, outcome IN ('ALLOW', 'WARN', 'BLOCK') AS acts, round(r1::numeric, 2) AS sure,
               'the command reads a file that only root may read, number ' || key AS reason,
               round((r1 * 5000)::numeric, 3) AS queue,
               round(exp(7 + 0.5 * sqrt(-2 * ln(1 - r2)) * cos(6.2831853 * r3))::numeric, 3)
                 AS service
        FROM (
            SELECT model, key, epoch, random() AS r1, random() AS r2, random() AS r3,
                   CASE WHEN chance < 0.004 THEN 'API_ERROR' WHEN chance < 0.01 THEN 'TIMEOUT_ERROR'
                        WHEN chance < 0.02 THEN 'FORMAT_ERROR' WHEN chance < 0.1 THEN 'WARN'
                        WHEN chance < 0.5 THEN 'ALLOW' ELSE 'BLOCK' END AS outcome
            FROM (
                SELECT model.id AS model, sample.key, epoch, random() AS chance
                FROM samples AS sample
                JOIN datasets AS dataset ON dataset.id = sample.dataset_id
                JOIN run_models AS model ON model.run_id = %(run)s
                CROSS JOIN generate_series(1, %(epochs)s) AS epoch
                WHERE dataset.fingerprint = %(run)s
                  AND sample.key >= %(first)s AND sample.key < %(end)s
                ORDER BY sample.key, model.id, epoch
            ) AS item
            OFFSET 0
        ) AS drawn
        OFFSET 0
    ) AS verdict
"""


def fill(url: str, run: str, verdicts: int, epochs: int = 1, models: int = MODELS) -> int:
    """Store a run of about so many verdicts and return how many there are."""
    samples = max(1, verdicts // models // epochs)
    values = {"run": run, "samples": samples, "models": models, "epochs": epochs}
    with psycopg.connect(url, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute(_RUN, values)
        # They hold all rows of a statement in memory.
        connection.execute("ALTER TABLE verdicts DISABLE TRIGGER USER")
        ((last,),) = connection.execute("SELECT max(key) FROM samples").fetchall()

    def insert(edges: tuple[int, int]) -> None:
        with psycopg.connect(url, cursor_factory=psycopg.ClientCursor) as connection:
            connection.execute(_VERDICTS, {**values, "first": edges[0], "end": edges[1]})

    edges = [last - samples + 1 + samples * part // PARTS for part in range(PARTS + 1)]
    with ThreadPoolExecutor(SESSIONS) as pool:
        list(pool.map(insert, pairwise(edges)))
    with psycopg.connect(url) as connection:
        connection.execute("ALTER TABLE verdicts ENABLE TRIGGER USER")
    return samples * models * epochs
