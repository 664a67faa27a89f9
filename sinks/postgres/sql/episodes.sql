-- What EpisodeSink runs. The column order of the stage is the order of encode_event.

-- name: copy_table
-- Straight into the table, which nearly always takes a batch whole. NULL is the empty string: no
-- field of an event may be empty, and it needs no escaping.
COPY episodic_events (
    id, tenant, event_type, workflow_type, workflow_id, task_id, user_id, agent_id, session_id,
    timestamp, tool_id, success, confidence, data, extra
) FROM STDIN (FORMAT text, NULL '')

-- name: create_stage
-- Where a batch lands that the table did not take. No constraints: the table checks.
CREATE TEMP TABLE IF NOT EXISTS stage_episodes (
    id uuid, tenant text, event_type text, workflow_type text, workflow_id text, task_id text,
    user_id text, agent_id text, session_id text, timestamp timestamptz, tool_id text,
    success boolean, confidence real, data jsonb, extra jsonb
) ON COMMIT DELETE ROWS

-- name: copy_stage
-- In the same format.
COPY stage_episodes FROM STDIN (FORMAT text, NULL '')

-- name: clear_stage
-- Forget the merged half of a batch that is being bisected.
DELETE FROM stage_episodes

-- name: merge_stage
-- Store what is new.
INSERT INTO episodic_events (
    id, tenant, event_type, workflow_type, workflow_id, task_id, user_id, agent_id, session_id,
    timestamp, tool_id, success, confidence, data, extra
)
SELECT
    id, tenant, event_type, workflow_type, workflow_id, task_id, user_id, agent_id, session_id,
    timestamp, tool_id, success, confidence, data, extra
FROM stage_episodes
ON CONFLICT (timestamp, tenant, id) DO NOTHING
