-- Retention: what is beyond the limits of age and number goes, a bounded batch at a time.

-- name: old_partitions
-- Days of events that are older than they are kept, with the number of rows by the statistics.
SELECT to_date(right(c.relname, 8), 'YYYYMMDD'), coalesce(s.n_live_tup, 0)
FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid
LEFT JOIN pg_stat_user_tables AS s ON s.relid = c.oid
WHERE inhparent = 'episodic_events'::regclass AND c.relname ~ '^episodic_events_[0-9]{8}$'
    AND to_date(right(c.relname, 8), 'YYYYMMDD') < %(day)s
ORDER BY 1

-- name: drop_partition
SELECT drop_event_partition(%(day)s)

-- name: beyond_events
-- Packed runs that are too old, or beyond the newest events of their workflow type. `age`: whether
-- it is their age; `version`: see `unchanged`.
SELECT workflow_type, id, version, packed, ended < %(horizon)s AS age FROM (
    SELECT workflow_type, id, xmin::text AS version, ended, cardinality(trace_ids) AS packed,
        sum(cardinality(trace_ids)) OVER (
            PARTITION BY workflow_type ORDER BY ended DESC, id DESC) AS total
    FROM episodes WHERE tenant = %(tenant)s AND trace IS NOT NULL
) AS run
WHERE total > %(keep_events)s OR ended < %(horizon)s
ORDER BY ended, id LIMIT %(limit)s

-- name: forget_traces
-- Their types stay: by them `memory_has_event` filters, and `verify` sees that the events were there.
UPDATE episodes SET trace = NULL, trace_ids = NULL
WHERE tenant = %(tenant)s AND id = ANY (%(ids)s::bigint[])

-- name: beyond_cases
-- Live episodes beyond the limit of their user and agent, or, of runs that name no user, of their
-- workflow type, and as many quarantined ones. The first of each kind (workflow type, query, tools,
-- outcome) stay before further ones; among these, accepted and rewarded ones, then the newest. Those
-- of the last day stay whatever their number.
SELECT owner, part, id, version, packed FROM (
    SELECT *, row_number() OVER (
        PARTITION BY named, owner, part, state
        ORDER BY place, usefulness DESC, reward DESC NULLS LAST, ended DESC, id DESC) AS rank
    FROM (
        SELECT whose.*, state, id, xmin::text AS version, trace IS NOT NULL AS packed, usefulness,
            reward, ended,
            row_number() OVER (
                PARTITION BY named, owner, part, state, workflow_type, query_hash, tools, outcome
                ORDER BY usefulness DESC, reward DESC NULLS LAST, support DESC, ended DESC, id DESC
            ) AS place
        FROM episodes, LATERAL (
            SELECT true AS named, user_id AS owner, agent_id AS part WHERE user_id <> ''
            UNION ALL
            SELECT false, 'no user', workflow_type WHERE coalesce(user_id, '') = ''
        ) AS whose
        WHERE tenant = %(tenant)s AND state IN ('live', 'quarantined')
    ) AS kinds
) AS ranked
WHERE rank > CASE WHEN named THEN %(keep_cases)s ELSE %(keep_unnamed)s END
    AND ended < %(before)s
ORDER BY named, owner, part, rank LIMIT %(limit)s

-- name: empty
-- Merged and pruned runs whose events are deleted, too.
SELECT id, xmin::text AS version FROM episodes
WHERE tenant = %(tenant)s AND state IN ('merged', 'pruned') AND trace IS NULL
    AND ended < %(horizon)s
ORDER BY ended, id LIMIT %(limit)s

-- name: unchanged
-- Those of the found rows that no transaction has changed since; none does before this one ends.
SELECT e.id FROM episodes AS e
JOIN unnest(%(ids)s::bigint[], %(versions)s::text[]) AS found (id, version)
    ON e.id = found.id AND e.xmin::text = found.version
WHERE e.tenant = %(tenant)s
ORDER BY e.id FOR UPDATE OF e

-- name: prune_members
-- Runs that were merged into episodes that go.
UPDATE episodes SET state = 'pruned', merged_into = NULL
WHERE tenant = %(tenant)s AND merged_into = ANY (%(ids)s::bigint[])

-- name: prune_packed
-- Their packed events stay as long as those of others.
UPDATE episodes SET state = 'pruned', quarantine = NULL, support = 0, query = NULL,
    query_hash = NULL, context = '{}',
    first_call = NULL, tools = '{}', calls = NULL, concepts = '{}', domains = '{}',
    agents_used = '{}', insights = '{}', reference_ids = '{}', response = NULL,
    sealed = NULL
WHERE tenant = %(tenant)s AND id = ANY (%(ids)s::bigint[]) AND trace IS NOT NULL

-- name: delete_unpacked
DELETE FROM episodes
WHERE tenant = %(tenant)s AND id = ANY (%(ids)s::bigint[]) AND trace IS NULL

-- name: delete_empty
WITH gone AS (
    DELETE FROM episodes WHERE tenant = %(tenant)s AND id = ANY (%(ids)s::bigint[])
    RETURNING merged_into
)
UPDATE episodes AS r SET support = r.support - g.runs
FROM (
    SELECT merged_into, count(*)::integer AS runs FROM gone
    WHERE merged_into IS NOT NULL GROUP BY merged_into
) AS g
WHERE r.tenant = %(tenant)s AND r.id = g.merged_into
