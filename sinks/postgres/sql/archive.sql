-- Episodes read back as events, for replay.

-- name: archived
-- The stored events of a range in the order in which they happened; at equal times a prediction comes
-- before its outcome, and ids decide between the others. Each packed run comes as one row, before the
-- events from its beginning on. In one statement, so that none is missed while a run is packed.
SELECT id::text, event_type, tenant, workflow_type, workflow_id, task_id, user_id, agent_id,
    session_id, (extract(epoch FROM timestamp) * 1000)::bigint AS timestamp, tool_id, success,
    confidence, data, extra, NULL::bytea AS trace, NULL::text[] AS trace_ids,
    timestamp AS place, event_type <> 'speculation_start' AS late
FROM episodic_events
WHERE timestamp >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
    AND timestamp < timestamptz 'epoch' + %(until)s * interval '1 millisecond'
    AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
UNION ALL
SELECT NULL, NULL, tenant, workflow_type, workflow_id, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
    NULL, NULL, NULL, trace, trace_ids::text[], started, NULL
FROM episodes
WHERE trace IS NOT NULL
    AND started < timestamptz 'epoch' + %(until)s * interval '1 millisecond'
    AND ended >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
    AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
ORDER BY place, late NULLS FIRST, id

-- name: count_archived
-- The number of events in a range: of rows and of packed runs wholly within it. Runs that are partly
-- within it are counted by their times: see partly_archived.
SELECT (
    SELECT count(*) FROM episodic_events
    WHERE timestamp >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
        AND timestamp < timestamptz 'epoch' + %(until)s * interval '1 millisecond'
        AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
        AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
) + (
    SELECT coalesce(sum(cardinality(trace_ids)), 0) FROM episodes
    WHERE trace IS NOT NULL
        AND started >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
        AND ended < timestamptz 'epoch' + %(until)s * interval '1 millisecond'
        AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
        AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
)

-- name: partly_archived
-- Packed runs of which a part may be within the range.
SELECT tenant, workflow_id, trace, trace_ids::text[] FROM episodes
WHERE trace IS NOT NULL
    AND started < timestamptz 'epoch' + %(until)s * interval '1 millisecond'
    AND ended >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
    AND (started < timestamptz 'epoch' + %(since)s * interval '1 millisecond'
        OR ended >= timestamptz 'epoch' + %(until)s * interval '1 millisecond')
    AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
