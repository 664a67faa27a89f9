-- Episodes read back as events, for replay.

-- name: archived
-- The stored events of a range in the order in which they happened; at equal times a prediction comes
-- before its outcome, and ids decide between the others.
SELECT id::text, event_type, tenant, workflow_type, workflow_id, task_id, user_id, agent_id,
    session_id, (extract(epoch FROM timestamp) * 1000)::bigint AS timestamp, tool_id, success,
    confidence, data, extra
FROM episodic_events
WHERE timestamp >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
    AND timestamp < timestamptz 'epoch' + %(until)s * interval '1 millisecond'
    AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
ORDER BY timestamp, event_type <> 'speculation_start', id

-- name: extent
-- The number of events, and the times of the first and the last (Unix ms).
SELECT count(*), (extract(epoch FROM min(timestamp)) * 1000)::bigint,
    (extract(epoch FROM max(timestamp)) * 1000)::bigint
FROM episodic_events
WHERE timestamp >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
    AND timestamp < timestamptz 'epoch' + %(until)s * interval '1 millisecond'
    AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND (%(workflow_type)s::text IS NULL OR workflow_type = %(workflow_type)s)
