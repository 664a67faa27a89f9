-- What a purge does to each table, in this order and in one transaction.

-- name: purges
-- What has been erased of these tenants, or of all; `limit`: so many at most, NULL: all.
SELECT tenant, user_id, session_id, workflow_id, id, (extract(epoch FROM at) * 1000)::bigint, runs,
    epoch, offsets, coalesce(rows, 0)
FROM memory_purges
WHERE %(tenants)s::text[] IS NULL OR tenant = ANY (%(tenants)s::text[])
ORDER BY at, tenant, user_id, session_id, workflow_id
LIMIT %(limit)s::bigint

-- name: purges_naming
-- Those of these tenants that may cover events with some users, sessions and workflow ids.
SELECT tenant, user_id, session_id, workflow_id, id, (extract(epoch FROM at) * 1000)::bigint, runs,
    epoch, offsets, coalesce(rows, 0)
FROM memory_purges
WHERE tenant = ANY (%(tenants)s::text[])
    AND (user_id = ANY (%(users)s::text[]) OR session_id = ANY (%(sessions)s::text[])
        OR workflow_id = ANY (%(workflows)s::text[]) OR runs && %(workflows)s::text[]
        OR (user_id = '' AND session_id = '' AND workflow_id = ''))
ORDER BY at, tenant, user_id, session_id, workflow_id

-- name: known
-- Whether the purge of a subject was carried out here before, in all workflow types.
SELECT EXISTS (
    SELECT FROM memory_purges
    WHERE tenant = %(tenant)s AND user_id = coalesce(%(user_id)s, '')
        AND session_id = coalesce(%(session_id)s, '')
        AND workflow_id = coalesce(%(workflow_id)s, '')
        AND erased_at >= timestamptz 'epoch' + %(at)s * interval '1 millisecond'
)

-- name: is_marked
-- Whether a mark of this purge is there.
SELECT EXISTS (
    SELECT FROM memory_purges
    WHERE tenant = %(tenant)s AND user_id = coalesce(%(user_id)s, '')
        AND session_id = coalesce(%(session_id)s, '')
        AND workflow_id = coalesce(%(workflow_id)s, '')
        AND at >= timestamptz 'epoch' + %(at)s * interval '1 millisecond'
)

-- name: open_runs
-- Runs of a user some of whose events name no user. `named`, `unnamed`: runs with packed events of the
-- user, and with packed events of none.
WITH own AS (
    SELECT workflow_id FROM episodic_events WHERE tenant = %(tenant)s AND user_id = %(user_id)s
    UNION
    SELECT workflow_id FROM episodes WHERE tenant = %(tenant)s AND user_id = %(user_id)s
    UNION
    SELECT unnest(%(named)s::text[])
)
SELECT workflow_id FROM episodic_events
WHERE tenant = %(tenant)s AND user_id IS NULL AND workflow_id IN (SELECT workflow_id FROM own)
UNION
SELECT workflow_id FROM unnest(%(unnamed)s::text[]) AS packed (workflow_id)
WHERE workflow_id IN (SELECT workflow_id FROM own)
ORDER BY workflow_id

-- name: types
-- The workflow types of what a purge would delete.
SELECT DISTINCT workflow_type FROM episodic_events
WHERE tenant = %(tenant)s
    AND (%(whole)s OR user_id = %(user_id)s OR session_id = %(session_id)s
        OR workflow_id = %(workflow_id)s OR user_id IS NULL AND workflow_id = ANY (%(runs)s))
    AND timestamp > timestamptz 'epoch' + %(since)s * interval '1 millisecond'
UNION
SELECT DISTINCT workflow_type FROM episodes
WHERE tenant = %(tenant)s
    AND (%(whole)s OR user_id = %(user_id)s OR session_id = %(session_id)s
        OR workflow_id = %(workflow_id)s)
    AND started > timestamptz 'epoch' + %(since)s * interval '1 millisecond'
UNION
SELECT DISTINCT workflow_type FROM episodes  -- packed runs may have events of the subject
WHERE tenant = %(tenant)s AND trace IS NOT NULL
    AND (%(whole)s OR user_id = %(user_id)s OR session_id = %(session_id)s
        OR workflow_id = %(workflow_id)s OR workflow_id = ANY (%(runs)s)
        OR %(user_id)s = ANY (trace_others) OR %(session_id)s = ANY (trace_others))
    AND ended > timestamptz 'epoch' + %(since)s * interval '1 millisecond'

-- name: need_rights
-- Deletes nothing, and is refused to a role that may not delete all that a purge covers.
DELETE FROM episodic_events WHERE false;
DELETE FROM episodes WHERE false;
DELETE FROM episode_outbox WHERE false;
DELETE FROM memory_retrievals WHERE false;
DELETE FROM memory_profiles WHERE false;
DELETE FROM memory_policies WHERE false;
DELETE FROM trace_dictionaries WHERE false;
DELETE FROM threshold_history WHERE false;
DELETE FROM notices WHERE false;
DELETE FROM context_watch WHERE false

-- name: create_lists
-- The runs and episodes that a purge has touched.
CREATE TEMP TABLE IF NOT EXISTS purged_runs (workflow_type text, workflow_id text)
    ON COMMIT DELETE ROWS;
CREATE TEMP TABLE IF NOT EXISTS purged_episodes (id bigint, workflow_id text, merged_into bigint)
    ON COMMIT DELETE ROWS;
DELETE FROM purged_runs;
DELETE FROM purged_episodes

-- name: note_packed
-- Runs whose packed events go as a whole, or could not be read: their episodes go with them.
INSERT INTO purged_runs SELECT * FROM unnest(%(workflow_types)s::text[], %(workflow_ids)s::text[])

-- name: episodic_events
WITH gone AS (
    DELETE FROM episodic_events
    WHERE tenant = %(tenant)s
        AND (%(whole)s OR user_id = %(user_id)s OR session_id = %(session_id)s
            OR workflow_id = %(workflow_id)s OR user_id IS NULL AND workflow_id = ANY (%(runs)s))
        AND timestamp > timestamptz 'epoch' + %(since)s * interval '1 millisecond'
        AND (%(types)s::text[] IS NOT NULL
            OR timestamp <= timestamptz 'epoch' + %(at)s * interval '1 millisecond')
        AND (%(types)s::text[] IS NULL OR workflow_type = ANY (%(types)s::text[]))
    RETURNING workflow_type, workflow_id
), noted AS (
    INSERT INTO purged_runs SELECT DISTINCT workflow_type, workflow_id FROM gone
)
SELECT count(*) FROM gone

-- name: episodes
-- By their own columns; episodes that begin later were not made of what is purged.
WITH gone AS (
    DELETE FROM episodes
    WHERE tenant = %(tenant)s
        AND (%(whole)s OR user_id = %(user_id)s OR session_id = %(session_id)s
            OR workflow_id = %(workflow_id)s OR user_id IS NULL AND workflow_id = ANY (%(runs)s)
            OR trace IS NULL AND %(user_id)s = ANY (trace_others)  -- of packed events that have gone
            OR trace IS NULL AND %(session_id)s = ANY (trace_others))
        AND started <= timestamptz 'epoch' + %(at)s * interval '1 millisecond'
        AND (%(types)s::text[] IS NULL OR workflow_type = ANY (%(types)s::text[]))
    RETURNING id, workflow_id, merged_into
), noted AS (
    INSERT INTO purged_episodes SELECT id, workflow_id, merged_into FROM gone
)
SELECT count(*) FROM gone

-- name: episodes_of_runs
-- Runs of several users are assembled again from the events that remain.
WITH gone AS (
    DELETE FROM episodes AS e USING purged_runs AS p
    WHERE e.tenant = %(tenant)s AND e.workflow_id = p.workflow_id
        AND e.workflow_type = p.workflow_type
    RETURNING e.id, e.workflow_id, e.merged_into
), noted AS (
    INSERT INTO purged_episodes SELECT id, workflow_id, merged_into FROM gone
)
SELECT count(*) FROM gone

-- name: count_lists
-- The planner knows nothing of a new temporary table.
ANALYZE purged_runs, purged_episodes

-- name: uncount_merged
-- Episodes that stood for a purged run too.
UPDATE episodes AS r SET support = r.support - p.runs
FROM (
    SELECT merged_into, count(*)::integer AS runs FROM purged_episodes
    WHERE merged_into IS NOT NULL GROUP BY merged_into
) AS p
WHERE r.tenant = %(tenant)s AND r.id = p.merged_into

-- name: episode_vectors
DELETE FROM episode_vectors AS v USING purged_episodes AS p
WHERE v.tenant = %(tenant)s AND v.episode = p.id

-- name: memory_retrievals
-- All stages of the retrievals that found one of the episodes, or whose run was retained as one, and of
-- those that the user asked for until then. What they judged is judged again by the memory worker,
-- without them. IN, which is computed once: beside OR, EXISTS is computed for each row.
WITH gone AS (
    DELETE FROM memory_retrievals AS r
    WHERE r.tenant = %(tenant)s AND (%(whole)s OR r.id IN (
        SELECT same.id FROM memory_retrievals AS same, jsonb_array_elements_text(
            CASE jsonb_typeof(same.data -> 'episodes')
                WHEN 'array' THEN same.data -> 'episodes' ELSE '[]' END
            || coalesce(same.data -> 'episode', '[]')
        ) AS named (id)
        JOIN purged_episodes AS p ON p.id::text = named.id
        WHERE same.tenant = %(tenant)s
        UNION ALL
        SELECT own.id FROM memory_retrievals AS own
        WHERE own.tenant = %(tenant)s AND own.data ->> 'writer' = %(writer)s
            AND own.at <= timestamptz 'epoch' + %(at)s * interval '1 millisecond'
    ))
    RETURNING r.stage, r.data
), judged AS (
    SELECT DISTINCT CASE WHEN named.id ~ '^-?[0-9]{1,19}$'
        AND named.id::numeric BETWEEN -9223372036854775808 AND 9223372036854775807
        THEN named.id::bigint END AS id
    FROM gone, jsonb_array_elements_text(
        CASE jsonb_typeof(data -> 'episodes') WHEN 'array' THEN data -> 'episodes' ELSE '[]' END
    ) AS named (id)
    WHERE stage = 'evaluate'
), unjudged AS (
    UPDATE episodes AS e SET usefulness = 0 FROM judged
    WHERE e.tenant = %(tenant)s AND e.id = judged.id AND e.usefulness <> 0
)
SELECT count(*) FROM gone

-- name: episode_outbox
-- Rows that are locked were taken by a worker that waits for the tenant: waiting for it would be a
-- deadlock. It has no need to: the worker reads what was purged before it assembles their runs.
DELETE FROM episode_outbox WHERE tenant = %(tenant)s AND ctid = ANY (ARRAY(
    SELECT ctid FROM episode_outbox
    WHERE tenant = %(tenant)s
        AND (%(whole)s OR workflow_id IN (SELECT workflow_id FROM purged_runs))
    FOR UPDATE SKIP LOCKED
))

-- name: assemble_again
-- What later events, or other users' events, have left of the runs; and runs for which a purged one
-- stood, from their packed events.
INSERT INTO episode_outbox (tenant, workflow_id, first_at, last_at)
SELECT tenant, workflow_id, min(timestamp), max(timestamp) FROM episodic_events
WHERE tenant = %(tenant)s AND workflow_id IN (
    SELECT workflow_id FROM purged_runs UNION SELECT workflow_id FROM purged_episodes
)
GROUP BY tenant, workflow_id
UNION ALL
SELECT m.tenant, m.workflow_id, m.started, m.ended
FROM purged_episodes AS p JOIN episodes AS m ON m.merged_into = p.id
WHERE m.tenant = %(tenant)s AND m.state = 'merged'

-- name: memory_profiles
DELETE FROM memory_profiles WHERE tenant = %(tenant)s AND (%(whole)s OR user_id = %(user_id)s)

-- name: memory_policies
-- Learned from all users of a tenant, without their names.
DELETE FROM memory_policies WHERE tenant = %(tenant)s AND %(whole)s

-- name: trace_dictionaries
-- Once no packed run of the tenant is left that may need one.
DELETE FROM trace_dictionaries WHERE tenant = %(tenant)s AND %(whole)s AND NOT EXISTS (
    SELECT FROM episodes WHERE tenant = %(tenant)s AND trace IS NOT NULL
)

-- name: threshold_history
DELETE FROM threshold_history
WHERE tenant = %(tenant)s AND (%(whole)s OR string_to_array(path, '/') @> ARRAY[%(part)s::text])
    AND at <= timestamptz 'epoch' + %(at)s * interval '1 millisecond'

-- name: notices
DELETE FROM notices
WHERE tenant = %(tenant)s AND (%(whole)s OR string_to_array(path, '/') @> ARRAY[%(part)s::text])
    AND at_ms <= %(at)s

-- name: context_watch
DELETE FROM context_watch
WHERE tenant = %(tenant)s AND (%(whole)s OR string_to_array(path, '/') @> ARRAY[%(part)s::text])

-- name: memory_purges
-- The mark by which writers leave out what comes late. Of several purges of a subject the latest
-- counts, with the runs of all; the offsets are those of its record, as far as the sink has come to it.
INSERT INTO memory_purges AS old (
    tenant, user_id, session_id, workflow_id, at, rows, id, runs, erased_at, epoch, offsets
) VALUES (
    %(tenant)s, coalesce(%(user_id)s, ''), coalesce(%(session_id)s, ''),
    coalesce(%(workflow_id)s, ''), timestamptz 'epoch' + %(at)s * interval '1 millisecond',
    %(rows)s, %(id)s, %(runs)s, CASE WHEN %(types)s::text[] IS NULL
        THEN timestamptz 'epoch' + %(at)s * interval '1 millisecond' END,
    %(epoch)s, %(offsets)s
)
ON CONFLICT (tenant, user_id, session_id, workflow_id) DO UPDATE SET
    rows = coalesce(old.rows, 0) + excluded.rows,
    at = greatest(old.at, excluded.at),
    id = CASE WHEN excluded.at >= old.at THEN excluded.id ELSE old.id END,
    erased_at = greatest(old.erased_at, excluded.erased_at),
    runs = ARRAY(SELECT unnest(old.runs) UNION SELECT unnest(excluded.runs) ORDER BY 1),
    epoch = CASE WHEN excluded.at > old.at THEN excluded.epoch
        WHEN excluded.at < old.at THEN old.epoch
        ELSE coalesce(excluded.epoch, old.epoch) END,
    offsets = CASE WHEN excluded.at > old.at THEN excluded.offsets
        WHEN excluded.at < old.at OR excluded.epoch IS NULL THEN old.offsets
        WHEN old.epoch = excluded.epoch THEN old.offsets || excluded.offsets
        ELSE excluded.offsets END

-- name: memory_audit
-- Who was purged and how many rows of each table, never their content.
INSERT INTO memory_audit (tenant, user_id, action, counts)
VALUES (%(tenant)s, %(user_id)s, 'purge', %(counts)s)

-- name: audits
SELECT counts, (extract(epoch FROM at) * 1000)::bigint FROM memory_audit
WHERE action = 'purge' AND tenant = %(tenant)s AND counts ->> 'id' = %(id)s
ORDER BY id

-- name: remaining
-- Rows that a purge covers and that are still there: none, once every writer is past it.
SELECT 'episodic_events', count(*) FROM episodic_events
WHERE tenant = %(tenant)s
    AND (%(whole)s OR user_id = %(user_id)s OR session_id = %(session_id)s
        OR workflow_id = %(workflow_id)s OR user_id IS NULL AND workflow_id = ANY (%(runs)s))
    AND timestamp <= timestamptz 'epoch' + %(at)s * interval '1 millisecond'
UNION ALL
SELECT 'episodes', count(*) FROM episodes
WHERE tenant = %(tenant)s
    AND (%(whole)s OR user_id = %(user_id)s OR session_id = %(session_id)s
        OR workflow_id = %(workflow_id)s OR user_id IS NULL AND workflow_id = ANY (%(runs)s)
        OR trace IS NULL AND (%(user_id)s = ANY (trace_others)
            OR %(session_id)s = ANY (trace_others)))
    AND started <= timestamptz 'epoch' + %(at)s * interval '1 millisecond'
UNION ALL
SELECT 'threshold_history', count(*) FROM threshold_history AS h
WHERE h.tenant = %(tenant)s AND (%(whole)s OR string_to_array(h.path, '/') @> ARRAY[%(part)s::text])
    AND h.at <= timestamptz 'epoch' + %(at)s * interval '1 millisecond'
    -- A deletion has no time. That of a context that was learned after the purge is not covered.
    AND NOT (h.learner = '' AND EXISTS (
        SELECT FROM threshold_history AS later
        WHERE later.tenant = h.tenant AND later.path = h.path
            AND later.at > timestamptz 'epoch' + %(at)s * interval '1 millisecond'
            AND (later.epoch, later."offset") < (h.epoch, h."offset")
    ))
UNION ALL
SELECT 'notices', count(*) FROM notices
WHERE tenant = %(tenant)s AND (%(whole)s OR string_to_array(path, '/') @> ARRAY[%(part)s::text])
    AND at_ms <= %(at)s
UNION ALL
SELECT 'memory_retrievals', count(*) FROM memory_retrievals
WHERE tenant = %(tenant)s AND (%(whole)s OR data ->> 'writer' = %(writer)s)
    AND at <= timestamptz 'epoch' + %(at)s * interval '1 millisecond'

-- name: packed_runs
-- Packed runs that may have events that a purge covers; with the columns of `PackedRun`.
SELECT tenant, workflow_id, workflow_type, user_id, session_id, trace, trace_ids::text[]
FROM episodes
WHERE tenant = %(tenant)s AND trace IS NOT NULL
    AND (%(whole)s OR user_id = %(user_id)s OR session_id = %(session_id)s
        OR workflow_id = %(workflow_id)s OR workflow_id = ANY (%(runs)s)
        OR %(user_id)s = ANY (trace_others) OR %(session_id)s = ANY (trace_others))
    AND started <= timestamptz 'epoch' + %(at)s * interval '1 millisecond'

-- name: preview
-- What a purge would delete of events and episodes, and of the retrievals that the user asked for.
SELECT (SELECT count(*) FROM episodic_events
    WHERE tenant = %(tenant)s
        AND (%(whole)s OR user_id = %(user_id)s OR session_id = %(session_id)s
            OR workflow_id = %(workflow_id)s OR user_id IS NULL AND workflow_id = ANY (%(runs)s))
        AND timestamp <= timestamptz 'epoch' + %(at)s * interval '1 millisecond'),
    (SELECT count(*) FROM episodes
    WHERE tenant = %(tenant)s
        AND (%(whole)s OR user_id = %(user_id)s OR session_id = %(session_id)s
            OR workflow_id = %(workflow_id)s)
        AND started <= timestamptz 'epoch' + %(at)s * interval '1 millisecond'),
    (SELECT count(DISTINCT id) FROM memory_retrievals
    WHERE tenant = %(tenant)s AND (%(whole)s OR data ->> 'writer' = %(writer)s)
        AND at <= timestamptz 'epoch' + %(at)s * interval '1 millisecond')

-- name: has_vectors
SELECT to_regclass('episode_vectors') IS NOT NULL
