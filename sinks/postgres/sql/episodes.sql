-- The statements of EpisodeSink. The column order of the stage is the order of encode_event.

-- name: copy_table
-- Copies into the table, which nearly always accepts the whole batch. NULL is the empty string: no
-- field of an event may be empty, and it needs no escaping.
COPY episodic_events (
    id, tenant, event_type, workflow_type, workflow_id, task_id, user_id, agent_id, session_id,
    timestamp, tool_id, success, confidence, data, extra
) FROM STDIN (FORMAT text, NULL '')

-- name: create_stage
-- Receives a batch that the table refused. No constraints: the table checks them.
CREATE TEMP TABLE IF NOT EXISTS stage_episodes (
    id uuid, tenant text, event_type text, workflow_type text, workflow_id text, task_id text,
    user_id text, agent_id text, session_id text, timestamp timestamptz, tool_id text,
    success boolean, confidence real, data jsonb, extra jsonb
) ON COMMIT DELETE ROWS

-- name: copy_stage
-- In the format of copy_table.
COPY stage_episodes FROM STDIN (FORMAT text, NULL '')

-- name: clear_stage
-- Delete the merged half of a batch that is being bisected.
DELETE FROM stage_episodes

-- name: merge_stage
-- Store the rows that are new.
INSERT INTO episodic_events (
    id, tenant, event_type, workflow_type, workflow_id, task_id, user_id, agent_id, session_id,
    timestamp, tool_id, success, confidence, data, extra
)
SELECT
    id, tenant, event_type, workflow_type, workflow_id, task_id, user_id, agent_id, session_id,
    timestamp, tool_id, success, confidence, data, extra
FROM stage_episodes
ON CONFLICT (timestamp, tenant, id) DO NOTHING

-- name: copy_outbox
-- The runs of the stored events, for the memory worker. Append only: see migration 0006.
COPY episode_outbox (tenant, workflow_id, first_at, last_at) FROM STDIN (FORMAT text, NULL '')

-- name: drop_packed
-- Rows that are packed already: see migration 0009.
SELECT memory_drop_packed(%(tenants)s::text[], %(workflow_ids)s::text[])
