-- The statements of HistorySink. The column order of the stage is the order of encode_threshold.

-- name: create_stage
-- Receives a batch of threshold changes before it is merged.
CREATE TEMP TABLE IF NOT EXISTS stage_history (
    tenant text, workflow_type text, path text, epoch bigint, "offset" bigint,
    speculate double precision, suggest double precision, outcomes bigint, learner text,
    at_ms bigint
) ON COMMIT DELETE ROWS

-- name: copy_stage
-- NULL is the empty string; the table refuses it where a value is required.
COPY stage_history FROM STDIN (FORMAT text, NULL '')

-- name: clear_stage
-- Delete the merged half of a batch that is being bisected.
DELETE FROM stage_history

-- name: merge_stage
-- Store the rows that are new. Days and the time of day are added separately: interval multiplication
-- uses double precision, and stays exact this way up to the year 9999. A tenant's default has no
-- workflow type, and a deleted context no learner.
INSERT INTO threshold_history (
    tenant, workflow_type, path, epoch, "offset", speculate, suggest, outcomes, learner, at
)
SELECT
    tenant, coalesce(workflow_type, ''), path, epoch, "offset", speculate, suggest, outcomes,
    coalesce(learner, ''),
    timestamptz 'epoch' + (at_ms / 86400000) * interval '24 hours'
        + (at_ms % 86400000) * interval '1 millisecond'
FROM stage_history
ON CONFLICT (tenant, path, epoch, "offset") DO NOTHING
