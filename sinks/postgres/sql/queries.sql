-- The read side of the CLI and of the demo's invariants.

-- name: events_of_workflow
-- The newest events of one workflow, newest first; uses idx_episodic_workflow_time.
SELECT id::text, event_type, tenant, workflow_type, workflow_id, task_id, user_id, agent_id,
    session_id, (extract(epoch FROM timestamp) * 1000)::bigint AS timestamp, tool_id, success,
    confidence, data, extra
FROM episodic_events
WHERE workflow_id = %(workflow_id)s AND tenant = %(tenant)s
ORDER BY timestamp DESC, id DESC
LIMIT %(limit)s

-- name: count_events
-- Stored rows and distinct ids of one tenant: they differ if an event was stored twice.
SELECT count(*), count(DISTINCT id) FROM episodic_events WHERE tenant = %(tenant)s

-- name: event_ids
-- The ids of one tenant.
SELECT DISTINCT id::text FROM episodic_events WHERE tenant = %(tenant)s

-- name: history_of_context
-- The newest changes of one context's thresholds, newest version first; uses the primary key.
SELECT tenant, workflow_type, path, speculate, suggest, epoch, "offset", outcomes, learner,
    (extract(epoch FROM at) * 1000)::bigint AS at
FROM threshold_history
WHERE tenant = %(tenant)s AND path = %(path)s
    AND at >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
ORDER BY epoch DESC, "offset" DESC
LIMIT %(limit)s

-- name: not_stored
-- The events of a list that have no row; uses the unique key. Times as in history.sql.
SELECT wanted.id::text
FROM unnest(
    string_to_array(%(ids)s, ',')::uuid[],
    string_to_array(%(tenants)s, E'\x1f'),
    string_to_array(%(timestamps)s, ',')::bigint[]
) AS wanted (id, tenant, at_ms)
WHERE NOT EXISTS (
    SELECT FROM episodic_events AS e
    WHERE e.timestamp = timestamptz 'epoch' + (at_ms / 86400000) * interval '24 hours'
            + (at_ms %% 86400000) * interval '1 millisecond'
        AND e.tenant = wanted.tenant AND e.id = wanted.id
)

-- name: estimate_events
-- The approximate number of stored events, from Postgres' statistics: counting them takes too long.
SELECT coalesce(sum(s.n_live_tup), 0)::bigint
FROM pg_partition_tree(to_regclass('episodic_events')) AS t
JOIN pg_stat_user_tables AS s ON s.relid = t.relid
