-- Deleting verdicts: `db.archive` uses this.

-- name: last_of_batch
-- The key of the last sample among the next `:limit` verdicts of the model `:model` about samples
-- after the key `:after`; null when there are none.
SELECT max(sample_key) FROM (
    SELECT sample_key FROM verdicts
    WHERE run_model_id = :model AND sample_key > :after
    ORDER BY sample_key LIMIT :limit) AS batch
