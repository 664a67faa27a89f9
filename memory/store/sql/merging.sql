-- Consolidation: repeated routine runs of one writer become one episode with a count.

-- name: next_tenant
SELECT min(tenant) FROM episodes WHERE tenant > %(after)s

-- name: queries
-- The next queries that several routine runs of a tenant have in common.
SELECT e.query_hash FROM episodes AS e
WHERE e.tenant = %(tenant)s AND e.query_hash > %(after)s
    AND memory_stays(e, %(before)s, %(surprise)s) IS NULL
GROUP BY e.query_hash HAVING count(*) > 1 ORDER BY e.query_hash LIMIT %(limit)s

-- name: lock_routine
-- The routine runs of queries that nothing else works on, newest first, locked. Runs are equal if all
-- columns after the support are.
SELECT e.id, e.query_hash, e.support, e.workflow_type, e.user_id, e.agent_id,
    CASE WHEN coalesce(nullif(e.user_id, ''), nullif(e.agent_id, '')) IS NULL
        THEN e.session_id END,
    e.context_hash,
    md5((e.context, e.calls, e.concepts, e.domains, e.agents_used,
        substr(e.sealed, 1, 12))::text)  -- its key, and a keyed hash of query, calls and response
FROM episodes AS e
WHERE e.tenant = %(tenant)s AND e.query_hash = ANY (%(queries)s)
    AND memory_stays(e, %(before)s, %(surprise)s) IS NULL
ORDER BY e.query_hash, e.ended DESC, e.id DESC LIMIT %(limit)s
FOR NO KEY UPDATE OF e SKIP LOCKED

-- name: move_merged
-- What was merged into runs that are merged now.
UPDATE episodes AS e SET merged_into = m.into_id
FROM unnest(%(ids)s::bigint[], %(intos)s::bigint[]) AS m (id, into_id)
WHERE e.tenant = %(tenant)s AND e.merged_into = m.id

-- name: merge
-- Only what identifies the runs stays, with their insights and packed events.
UPDATE episodes AS e SET state = 'merged', support = 0, merged_into = m.into_id, query = NULL,
    query_hash = NULL, context = '{}', first_call = NULL, tools = '{}', calls = NULL,
    concepts = '{}', domains = '{}', agents_used = '{}', reference_ids = '{}', response = NULL,
    sealed = NULL
FROM unnest(%(ids)s::bigint[], %(intos)s::bigint[]) AS m (id, into_id)
WHERE e.tenant = %(tenant)s AND e.id = m.id

-- name: drop_vectors
DELETE FROM episode_vectors WHERE tenant = %(tenant)s AND episode = ANY (%(ids)s::bigint[])

-- name: set_support
UPDATE episodes AS e SET support = m.support
FROM unnest(%(reps)s::bigint[], %(supports)s::integer[]) AS m (id, support)
WHERE e.tenant = %(tenant)s AND e.id = m.id

-- name: release
-- After episodes were written: those that were merged stand for themselves again; what was merged
-- into one that has changed is assembled again, and so stands for itself.
WITH changed AS (
    SELECT e.tenant, e.id, e.merged_into, e.support
    FROM unnest(%(tenants)s::text[], %(ids)s::bigint[]) AS written (tenant, id)
    JOIN episodes AS e ON e.tenant = written.tenant AND e.id = written.id
    WHERE e.merged_into IS NOT NULL OR e.support > 1
), freed AS (
    UPDATE episodes AS e SET merged_into = NULL FROM changed AS c
    WHERE e.tenant = c.tenant AND e.id = c.id AND c.merged_into IS NOT NULL
), counted AS (
    UPDATE episodes AS r SET support = r.support - c.freed
    FROM (
        SELECT tenant, merged_into, count(*)::integer AS freed FROM changed
        WHERE merged_into IS NOT NULL GROUP BY tenant, merged_into
    ) AS c
    WHERE r.tenant = c.tenant AND r.id = c.merged_into
)
INSERT INTO episode_outbox (tenant, workflow_id, first_at, last_at)
SELECT m.tenant, m.workflow_id, m.started, m.ended
FROM changed AS c JOIN episodes AS m ON m.tenant = c.tenant AND m.merged_into = c.id
WHERE m.state = 'merged'

-- name: outlook
-- By tenant and workflow type: runs, and what a consolidation would do with them and why.
SELECT tenant, workflow_type,
    CASE WHEN why IS NOT NULL THEN why WHEN place > 1 THEN 'to merge'
        WHEN of_a_kind > 1 THEN 'stands for others' ELSE 'the only one' END AS what,
    count(*)
FROM (
    SELECT *, row_number() OVER (kind ORDER BY ended DESC, id DESC) AS place,
        count(*) OVER kind AS of_a_kind
    FROM (
        SELECT e.tenant, e.workflow_type, e.id, e.ended, e.query_hash, e.context_hash, e.user_id,
            e.agent_id, CASE WHEN coalesce(nullif(e.user_id, ''), nullif(e.agent_id, '')) IS NULL
                THEN e.session_id END AS session_id,
            memory_stays(e, %(before)s, %(surprise)s) AS why,
            md5((e.context, e.calls, e.concepts, e.domains, e.agents_used,
                substr(e.sealed, 1, 12))::text) AS made
        FROM episodes AS e WHERE %(tenant)s::text IS NULL OR e.tenant = %(tenant)s
    ) AS run
    WINDOW kind AS (PARTITION BY tenant, workflow_type, why, query_hash, context_hash, user_id,
        agent_id, session_id, made)
) AS run
GROUP BY 1, 2, 3 ORDER BY 1, 2, 4 DESC, 3

-- name: finished
-- When a task of the maintenance has last ended, Unix ms, and seconds ago.
SELECT (extract(epoch FROM finished) * 1000)::bigint,
    extract(epoch FROM clock_timestamp() - finished)::float8
FROM memory_maintenance WHERE task = %(task)s

-- name: oldest_cold
-- Seconds since the oldest episode with packed events was packed or later, by its last event.
SELECT extract(epoch FROM clock_timestamp() - min(ended))::float8 FROM episodes
WHERE trace IS NOT NULL

-- name: note_finished
INSERT INTO memory_maintenance AS old (task, finished, counts, horizon)
VALUES (%(task)s, clock_timestamp(), %(counts)s, %(horizon)s)
ON CONFLICT (task) DO UPDATE SET finished = excluded.finished, counts = excluded.counts,
    horizon = greatest(old.horizon, excluded.horizon)
