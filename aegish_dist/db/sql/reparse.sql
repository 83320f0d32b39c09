-- What parsers read in completions: `db.reparse` uses this.

-- name: write_readings
-- Replaces the parsed columns of the verdicts in the JSON list `:rows`. The verdicts are locked, so
-- the order of the updates does not matter.
UPDATE verdicts
SET outcome = reading.outcome, reason = reading.reason, confidence = reading.confidence,
    parser_version = reading.parser_version
FROM json_populate_recordset(NULL::verdicts, CAST(:rows AS json)) AS reading
WHERE verdicts.run_model_id = reading.run_model_id AND verdicts.sample_key = reading.sample_key
  AND verdicts.epoch = reading.epoch AND verdicts.generation = reading.generation
