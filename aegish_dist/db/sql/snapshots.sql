-- Snapshots of runs: `db.snapshots` appends and finds these.

-- name: add_snapshot
-- Appends a snapshot of the run `:run_id`, and returns its row.
INSERT INTO snapshots (
    run_id, scoring, scoring_version, metrics_version, parser_versions, verdicts, verdicts_hash,
    code_version, document, identities, pair_p, opinion)
VALUES (
    :run_id, :scoring, :scoring_version, :metrics_version, :parser_versions, :verdicts,
    :verdicts_hash, :code_version, CAST(:document AS jsonb), CAST(:identities AS jsonb),
    CAST(:pair_p AS jsonb), CAST(:opinion AS jsonb))
RETURNING *

-- name: add_metrics
-- Adds the metrics of the snapshot `:snapshot` from a JSON list of rows by column.
INSERT INTO snapshot_metrics (
    snapshot_id, model, metric, category, value, stderr, stderr_clustered, ci_low, ci_high, n,
    clusters)
SELECT :snapshot, model, metric, category, value, stderr, stderr_clustered, ci_low, ci_high, n,
       clusters
FROM json_populate_recordset(NULL::snapshot_metrics, CAST(:rows AS json))

-- name: find_snapshot
-- The newest snapshot, or that with the key `:id`, of the run `:run`, or of any if that is null, and
-- if `:made_under` is not null, made under an opinion that contains it.
SELECT * FROM snapshots
WHERE (CAST(:run AS text) IS NULL OR run_id = :run)
  AND (CAST(:id AS integer) IS NULL OR id = :id)
  AND (CAST(:made_under AS jsonb) IS NULL OR opinion @> CAST(:made_under AS jsonb))
ORDER BY id DESC LIMIT 1
