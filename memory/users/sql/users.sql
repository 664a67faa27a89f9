-- What users see and set of their memory. Each is run in a transaction of the tenant.

-- name: memories
-- A user's episodes, newest first; uses episodes_user. A merged one has the texts of the episode that
-- counts it, for which they were sealed.
SELECT e.id, e.workflow_type, e.workflow_id, e.agent_id,
    (extract(epoch FROM e.ended) * 1000)::bigint AS ended, e.outcome, e.reward,
    coalesce(c.query, e.query) AS query, coalesce(c.tools, e.tools) AS tools, e.state, e.events,
    coalesce(c.sealed, e.sealed) AS sealed, coalesce(c.id, e.id) AS content_id
FROM episodes AS e LEFT JOIN episodes AS c ON c.tenant = e.tenant AND c.id = e.merged_into
WHERE e.tenant = %(tenant)s AND e.user_id = %(user_id)s
    AND (%(agent_id)s::text IS NULL OR e.agent_id = %(agent_id)s)
    AND e.ended >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
ORDER BY e.ended DESC, e.id LIMIT %(limit)s

-- name: count_events
-- How many events of a run are stored, packed ones too.
SELECT (SELECT count(*) FROM episodic_events
    WHERE tenant = %(tenant)s AND workflow_id = %(workflow_id)s AND workflow_type = %(workflow_type)s)
    + coalesce((SELECT cardinality(trace_ids) FROM episodes
    WHERE tenant = %(tenant)s AND workflow_id = %(workflow_id)s
        AND workflow_type = %(workflow_type)s), 0)

-- name: of_workflow
-- The users and types of the runs with a workflow id: a purge of it erases them all.
SELECT DISTINCT workflow_type, user_id FROM episodes
WHERE tenant = %(tenant)s AND workflow_id = %(workflow_id)s
UNION
SELECT DISTINCT workflow_type, user_id FROM episodic_events
WHERE tenant = %(tenant)s AND workflow_id = %(workflow_id)s AND user_id IS NOT NULL
UNION  -- users and sessions of packed events; sessions of the same run are left out
SELECT DISTINCT workflow_type, other FROM episodes, unnest(trace_others) AS other
WHERE tenant = %(tenant)s AND workflow_id = %(workflow_id)s AND other IS DISTINCT FROM session_id

-- name: profiles
-- What a user has set, for all agents first.
SELECT agent_id, enabled, window_size, window_days, shared,
    (extract(epoch FROM changed_at) * 1000)::bigint AS changed
FROM memory_profiles WHERE tenant = %(tenant)s AND user_id = %(user_id)s ORDER BY agent_id

-- name: set_profile
-- Add or replace one.
INSERT INTO memory_profiles AS old (
    tenant, user_id, agent_id, enabled, window_size, window_days, shared
) VALUES (
    %(tenant)s, %(user_id)s, %(agent_id)s, %(enabled)s, %(window_size)s, %(window_days)s, %(shared)s
)
ON CONFLICT (tenant, user_id, agent_id) DO UPDATE SET
    enabled = excluded.enabled, window_size = excluded.window_size,
    window_days = excluded.window_days, shared = excluded.shared, changed_at = now()

-- name: audit_profile
-- Which settings were changed; a purge keeps the row, so not to what.
INSERT INTO memory_audit (tenant, user_id, action, counts)
VALUES (%(tenant)s, %(user_id)s, 'profile', %(counts)s)

-- name: events
-- Events that the user's purge would delete, packed ones aside, from one key on.
SELECT id::text AS id, event_type, tenant, workflow_type, workflow_id, task_id, user_id, agent_id,
    session_id, (extract(epoch FROM timestamp) * 1000)::bigint AS timestamp, tool_id, success,
    confidence, data, extra
FROM episodic_events
WHERE tenant = %(tenant)s
    AND (user_id = %(user_id)s OR user_id IS NULL AND workflow_id = ANY (%(runs)s))
    AND (timestamp, id) > (timestamptz 'epoch' + %(after_ms)s * interval '1 millisecond',
        %(after_id)s::uuid)
ORDER BY timestamp, id LIMIT %(limit)s

-- name: packed_runs
-- Packed runs that may have events of the user, from one key on; with the columns of `PackedRun`.
SELECT tenant, workflow_id, workflow_type, user_id, session_id, trace, trace_ids::text[]
FROM episodes
WHERE tenant = %(tenant)s AND trace IS NOT NULL
    AND (user_id = %(user_id)s OR %(user_id)s = ANY (trace_others))
    AND (workflow_id, workflow_type) > (%(after_id)s::text, %(after_type)s::text)
ORDER BY workflow_id, workflow_type LIMIT %(limit)s

-- name: episodes
-- The user's episodes from one key on; a merged one with the texts of the episode that counts it.
SELECT e.id, e.tenant, e.workflow_type, e.workflow_id, e.user_id, e.agent_id, e.session_id,
    (extract(epoch FROM e.started) * 1000)::bigint AS started,
    (extract(epoch FROM e.ended) * 1000)::bigint AS ended, e.outcome, e.reward, e.confidence,
    e.duration_ms, e.cost_ms, coalesce(c.query, e.query) AS query,
    coalesce(c.query_hash, e.query_hash) AS query_hash, coalesce(c.context, e.context) AS context,
    e.context_hash, coalesce(c.first_call, e.first_call) AS first_call,
    coalesce(c.calls, e.calls) AS calls, coalesce(c.concepts, e.concepts) AS concepts,
    coalesce(c.domains, e.domains) AS domains, coalesce(c.agents_used, e.agents_used) AS agents_used,
    e.insights, e.reference_ids, e.response, e.events, coalesce(c.sealed, e.sealed) AS sealed,
    coalesce(c.id, e.id) AS content_id
FROM episodes AS e LEFT JOIN episodes AS c ON c.tenant = e.tenant AND c.id = e.merged_into
WHERE e.tenant = %(tenant)s AND e.user_id = %(user_id)s
    AND (e.workflow_id, e.workflow_type) > (%(after_id)s::text, %(after_type)s::text)
ORDER BY e.workflow_id, e.workflow_type LIMIT %(limit)s

-- name: retrievals
-- All stages of the retrievals that the user asked for, that found one of the episodes, or whose run was
-- retained as one.
SELECT r.id::text AS id, r.stage, (extract(epoch FROM r.at) * 1000)::bigint AS at, r.data
FROM memory_retrievals AS r
WHERE r.tenant = %(tenant)s AND r.id IN (
    SELECT same.id FROM memory_retrievals AS same, jsonb_array_elements_text(
        CASE jsonb_typeof(same.data -> 'episodes')
            WHEN 'array' THEN same.data -> 'episodes' ELSE '[]' END
        || coalesce(same.data -> 'episode', '[]')
    ) AS named (id)
    WHERE same.tenant = %(tenant)s AND named.id = ANY (%(ids)s)
    UNION ALL
    SELECT own.id FROM memory_retrievals AS own
    WHERE own.tenant = %(tenant)s AND own.data ->> 'writer' = %(writer)s
)
ORDER BY r.at, r.id

-- name: thresholds
-- Every stored value of contexts with the user in their path.
SELECT workflow_type, path, epoch, "offset", speculate, suggest, outcomes, learner,
    (extract(epoch FROM at) * 1000)::bigint AS at
FROM threshold_history
WHERE tenant = %(tenant)s AND string_to_array(path, '/') @> ARRAY[%(part)s::text]
ORDER BY path, epoch, "offset"

-- name: notices
-- Notices of these contexts.
SELECT id, kind, workflow_type, path, at_ms AS at, evidence FROM notices
WHERE tenant = %(tenant)s AND string_to_array(path, '/') @> ARRAY[%(part)s::text]
ORDER BY at_ms, id
