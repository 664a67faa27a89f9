-- What EpisodeSink runs. The column order of the stage is the order of encode_event.

-- name: create_stage
-- Where a batch lands before it is merged. No constraints: the table checks. Times are integers
-- because COPY reads them several times faster than timestamps; confidence is double precision
-- because a tiny one (1e-50) is a valid event and an error as real.
CREATE TEMP TABLE IF NOT EXISTS stage_episodes (
    id uuid, tenant text, event_type text, workflow_type text, workflow_id text, task_id text,
    user_id text, agent_id text, session_id text, at_ms bigint, tool_id text, success boolean,
    confidence double precision, data jsonb, extra jsonb
) ON COMMIT DELETE ROWS

-- name: copy_stage
-- NULL is the empty string: no field of an event may be empty, and it needs no escaping.
COPY stage_episodes FROM STDIN (FORMAT text, NULL '')

-- name: clear_stage
-- Forget the merged half of a batch that is being bisected.
DELETE FROM stage_episodes

-- name: merge_stage
-- Store what is new. Days and the rest of the day are added apart: interval multiplication goes
-- through double precision, and so stays exact up to the year 9999.
INSERT INTO episodic_events (
    id, tenant, event_type, workflow_type, workflow_id, task_id, user_id, agent_id, session_id,
    timestamp, tool_id, success, confidence, data, extra
)
SELECT
    id, tenant, event_type, workflow_type, workflow_id, task_id, user_id, agent_id, session_id,
    timestamptz 'epoch' + (at_ms / 86400000) * interval '24 hours'
        + (at_ms % 86400000) * interval '1 millisecond',
    tool_id, success,
    CASE WHEN abs(confidence) < 1e-37 THEN 0 ELSE confidence END::real,
    data, extra
FROM stage_episodes
ON CONFLICT (timestamp, tenant, id) DO NOTHING
