-- Packing cold runs, and reading packed ones.

-- name: dictionaries
-- Dictionaries by their ids.
SELECT id, runs, content FROM trace_dictionaries
WHERE tenant = %(tenant)s AND id = ANY (%(ids)s::integer[])

-- name: newest_dictionary
-- The dictionary that new traces of a tenant are packed with.
SELECT id, runs, content FROM trace_dictionaries
WHERE tenant = %(tenant)s ORDER BY id DESC LIMIT 1

-- name: lock_training
-- One at a time trains for a tenant, until the transaction ends.
SELECT pg_advisory_xact_lock(hashtextextended('headstart dictionary ' || %(tenant)s, 0))

-- name: next_dictionary
-- The id of a new dictionary, which is part of its content.
SELECT nextval(pg_get_serial_sequence('trace_dictionaries', 'id'))

-- name: add_dictionary
INSERT INTO trace_dictionaries (id, tenant, runs, content) OVERRIDING SYSTEM VALUE
VALUES (%(id)s, %(tenant)s, %(runs)s, %(content)s)

-- name: candidates
-- Cold runs that have events which are not packed, in the order of their keys, from one key on.
SELECT tenant, workflow_id, workflow_type, events FROM episodes
WHERE (tenant, workflow_id, workflow_type)
        > (%(after_tenant)s::text, %(after_id)s::text, %(after_type)s::text)
    AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND ended < now() - make_interval(secs => %(cold_s)s)
    AND events > coalesce(cardinality(trace_ids), 0) AND events <= %(most_events)s
    AND NOT (trace IS NULL AND trace_types IS NOT NULL)  -- its events have gone
ORDER BY tenant, workflow_id, workflow_type LIMIT %(limit)s

-- name: lock_runs
-- Those that are still cold and that no other worker has, locked.
SELECT e.tenant, e.workflow_id, e.workflow_type, e.user_id, e.session_id, e.trace,
    e.trace_ids::text[]
FROM unnest(%(tenants)s::text[], %(workflow_ids)s::text[], %(workflow_types)s::text[])
    AS run (tenant, workflow_id, workflow_type)
JOIN episodes AS e USING (tenant, workflow_id, workflow_type)
WHERE e.ended < now() - make_interval(secs => %(cold_s)s)
ORDER BY e.tenant, e.workflow_id, e.workflow_type
FOR NO KEY UPDATE OF e SKIP LOCKED

-- name: plan_by_index
-- Few runs among millions of events: by index, whatever the statistics say. Until the end of the
-- transaction.
SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)

-- name: rows_of_runs
-- The rows of runs, in the order of traces. `exact`: the time is one of whole milliseconds.
SELECT run.number, date_trunc('milliseconds', x.timestamp) = x.timestamp AS exact,
    (extract(epoch FROM x.timestamp) * 1000)::bigint, x.id::text, x.event_type, x.task_id, x.user_id,
    x.agent_id, x.session_id, x.tool_id, x.success, x.confidence, x.data::text, x.extra::text
FROM unnest(
    %(numbers)s::integer[], %(tenants)s::text[], %(workflow_ids)s::text[], %(workflow_types)s::text[]
) AS run (number, tenant, workflow_id, workflow_type)
JOIN episodes AS e USING (tenant, workflow_id, workflow_type)
JOIN episodic_events AS x ON x.workflow_id = e.workflow_id AND x.tenant = e.tenant
    AND x.workflow_type = e.workflow_type AND x.timestamp BETWEEN e.started AND e.ended
ORDER BY run.number, x.timestamp, x.id

-- name: store_traces
UPDATE episodes AS e SET trace = given.trace, trace_ids = given.ids::uuid[],
    trace_types = memory_event_bits(given.types::text[]), trace_others = given.others::text[]
FROM unnest(
    %(tenants)s::text[], %(workflow_ids)s::text[], %(workflow_types)s::text[], %(traces)s::bytea[],
    %(ids)s::text[], %(types)s::text[], %(others)s::text[]
) AS given (tenant, workflow_id, workflow_type, trace, ids, types, others)
WHERE e.tenant = given.tenant AND e.workflow_id = given.workflow_id
    AND e.workflow_type = given.workflow_type

-- name: delete_rows
-- Exactly the rows that were packed. Times as in history.sql.
DELETE FROM episodic_events AS x
USING unnest(%(tenants)s::text[], %(ids)s::uuid[], %(ats)s::bigint[]) AS packed (tenant, id, at_ms)
WHERE x.timestamp = timestamptz 'epoch' + (at_ms / 86400000) * interval '24 hours'
        + (at_ms %% 86400000) * interval '1 millisecond'
    AND x.tenant = packed.tenant AND x.id = packed.id

-- name: forget_traces
-- The events of these runs have rows again.
UPDATE episodes AS e
SET trace = NULL, trace_ids = NULL, trace_types = NULL, trace_others = NULL
FROM unnest(%(tenants)s::text[], %(workflow_ids)s::text[], %(workflow_types)s::text[])
    AS run (tenant, workflow_id, workflow_type)
WHERE e.tenant = run.tenant AND e.workflow_id = run.workflow_id
    AND e.workflow_type = run.workflow_type

-- name: insert_rows
INSERT INTO episodic_events (
    id, tenant, event_type, workflow_type, workflow_id, task_id, user_id, agent_id, session_id,
    timestamp, tool_id, success, confidence, data, extra
)
SELECT id, %(tenant)s, event_type, %(workflow_type)s, %(workflow_id)s, task_id, user_id, agent_id,
    session_id, timestamptz 'epoch' + (at_ms / 86400000) * interval '24 hours'
        + (at_ms %% 86400000) * interval '1 millisecond',
    tool_id, success, confidence, data, extra
FROM unnest(
    %(ids)s::uuid[], %(event_types)s::text[], %(task_ids)s::text[], %(user_ids)s::text[],
    %(agent_ids)s::text[], %(session_ids)s::text[], %(ats)s::bigint[], %(tool_ids)s::text[],
    %(successes)s::boolean[], %(confidences)s::real[], %(datas)s::jsonb[], %(extras)s::jsonb[]
) AS given (
    id, event_type, task_id, user_id, agent_id, session_id, at_ms, tool_id, success, confidence,
    data, extra
)
ON CONFLICT (timestamp, tenant, id) DO NOTHING

-- name: packed_with
-- Packed runs with events of a user, session or workflow. With a user: also those whose id is
-- among `runs`, or is that of a run with events of the user, because a purge looks there for events
-- that name no user.
SELECT tenant, workflow_id, workflow_type, user_id, session_id, trace, trace_ids::text[]
FROM episodes
WHERE tenant = %(tenant)s AND trace IS NOT NULL
    AND (%(user_id)s::text IS NULL OR workflow_id = ANY (%(runs)s::text[]) OR workflow_id IN (
        SELECT workflow_id FROM episodes
        WHERE tenant = %(tenant)s AND (user_id = %(user_id)s OR %(user_id)s = ANY (trace_others))
        UNION
        SELECT workflow_id FROM episodic_events
        WHERE tenant = %(tenant)s AND user_id = %(user_id)s
    ))
    AND (%(session_id)s::text IS NULL OR session_id = %(session_id)s
        OR %(session_id)s = ANY (trace_others))
    AND (%(workflow_id)s::text IS NULL OR workflow_id = %(workflow_id)s)
    AND (%(types)s::text[] IS NULL OR workflow_type = ANY (%(types)s::text[]))
ORDER BY workflow_id, workflow_type

-- name: traces_of_runs
-- The traces of runs, whatever their workflow type.
SELECT e.tenant, e.workflow_id, e.workflow_type, e.user_id, e.session_id, e.trace,
    e.trace_ids::text[]
FROM unnest(%(tenants)s::text[], %(workflow_ids)s::text[]) AS run (tenant, workflow_id)
JOIN episodes AS e ON e.tenant = run.tenant AND e.workflow_id = run.workflow_id
WHERE e.trace IS NOT NULL

-- name: outlook
-- By tenant: runs and events that are packed; that a pack would take; that are not cold; too large.
SELECT tenant,
    count(*) FILTER (WHERE packed > 0), coalesce(sum(packed), 0),
    coalesce(sum(octet_length(trace)), 0),
    count(*) FILTER (WHERE left_over > 0 AND cold AND fits),
    coalesce(sum(left_over) FILTER (WHERE left_over > 0 AND cold AND fits), 0),
    count(*) FILTER (WHERE left_over > 0 AND NOT cold),
    count(*) FILTER (WHERE left_over > 0 AND cold AND NOT fits)
FROM (
    SELECT tenant, trace, coalesce(cardinality(trace_ids), 0) AS packed,
        CASE WHEN trace IS NOT NULL OR trace_types IS NULL
            THEN events - coalesce(cardinality(trace_ids), 0) ELSE 0 END AS left_over,
        ended < now() - make_interval(secs => %(cold_s)s) AS cold, events <= %(most_events)s AS fits
    FROM episodes WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s
) AS run
GROUP BY tenant ORDER BY tenant
