-- The read side of the CLI and of the demo's invariants.

-- name: events_of_workflow
-- The newest events of one workflow, newest first, by idx_episodic_workflow_time; then its packed
-- events. In one statement, so that none is missed while a run is packed.
(
    SELECT id::text, event_type, tenant, workflow_type, workflow_id, task_id, user_id, agent_id,
        session_id, (extract(epoch FROM timestamp) * 1000)::bigint AS timestamp, tool_id, success,
        confidence, data, extra, NULL::bytea AS trace, NULL::text[] AS trace_ids
    FROM episodic_events
    WHERE workflow_id = %(workflow_id)s AND tenant = %(tenant)s
    ORDER BY timestamp DESC, id DESC
    LIMIT %(limit)s
)
UNION ALL
SELECT NULL, NULL, tenant, workflow_type, workflow_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, trace, trace_ids::text[]
FROM episodes
WHERE workflow_id = %(workflow_id)s AND tenant = %(tenant)s AND trace IS NOT NULL

-- name: count_events
-- Stored events and distinct ids of one tenant: they differ if an event was stored twice.
SELECT count(*), count(DISTINCT id) FROM (
    SELECT id FROM episodic_events WHERE tenant = %(tenant)s
    UNION ALL
    SELECT unnest(trace_ids) FROM episodes WHERE tenant = %(tenant)s
) AS stored

-- name: event_ids
-- The ids of one tenant.
SELECT id::text FROM episodic_events WHERE tenant = %(tenant)s
UNION
SELECT unnest(trace_ids)::text FROM episodes WHERE tenant = %(tenant)s

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
-- The events of a list that have no row, by the unique key, and are not packed either, by the key of
-- their runs; without those that retention has deleted. Times as in history.sql.
WITH missing AS MATERIALIZED (
    SELECT wanted.id, wanted.tenant, wanted.workflow_id, wanted.at_ms
    FROM unnest(
        string_to_array(%(ids)s, ',')::uuid[],
        string_to_array(%(tenants)s, E'\x1f'),
        string_to_array(%(timestamps)s, ',')::bigint[],
        ARRAY(SELECT json_array_elements_text(%(workflow_ids)s::json))
    ) AS wanted (id, tenant, at_ms, workflow_id)
    WHERE NOT EXISTS (
        SELECT FROM episodic_events AS e
        WHERE e.timestamp = timestamptz 'epoch' + (at_ms / 86400000) * interval '24 hours'
                + (at_ms %% 86400000) * interval '1 millisecond'
            AND e.tenant = wanted.tenant AND e.id = wanted.id
    )
)
SELECT id::text FROM missing
WHERE NOT EXISTS (
    SELECT FROM episodes AS e
    WHERE e.tenant = missing.tenant AND e.workflow_id = missing.workflow_id
        AND (missing.id = ANY (e.trace_ids) OR e.trace IS NULL AND e.trace_types IS NOT NULL)
) AND NOT EXISTS (
    SELECT FROM memory_maintenance AS m
    WHERE m.horizon > timestamptz 'epoch' + (at_ms / 86400000) * interval '24 hours'
)

-- name: estimate_events
-- The approximate number of stored events, from Postgres' statistics and from a sample of some 200
-- pages of packed runs: counting them takes too long.
WITH share AS (
    SELECT least(100.0, 20000.0 / greatest(relpages, 1))::real AS percent
    FROM pg_class WHERE oid = to_regclass('episodes')
)
SELECT (
    SELECT coalesce(sum(s.n_live_tup), 0)
    FROM pg_partition_tree(to_regclass('episodic_events')) AS t
    JOIN pg_stat_user_tables AS s ON s.relid = t.relid
)::bigint + coalesce((
    SELECT sum(cardinality(trace_ids)) * 100 / (SELECT percent FROM share)
    FROM episodes TABLESAMPLE SYSTEM ((SELECT percent FROM share))
), 0)::bigint
