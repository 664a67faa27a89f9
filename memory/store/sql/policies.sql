-- Versions of ranking policies, and the finished runs that they learn from: not from quarantined ones.

-- name: due
-- The next tenants after a name, and whether enough runs have finished for a new version: the same
-- numbers as `PolicyVersion.next_runs`. Weights of other features begin again.
WITH RECURSIVE page AS (
    SELECT (SELECT min(tenant) FROM episodes WHERE tenant > %(after)s) AS tenant, 1 AS place
    UNION ALL
    SELECT (SELECT min(e.tenant) FROM episodes AS e WHERE e.tenant > page.tenant), page.place + 1
    FROM page WHERE page.tenant IS NOT NULL AND page.place < %(limit)s
)
SELECT page.tenant, EXISTS (
    SELECT FROM episodes AS e
    WHERE e.tenant = page.tenant AND e.outcome IS NOT NULL AND memory_has_query(e)
        AND memory_has_calls(e)
        AND e.state <> 'quarantined'
        AND (e.ended, e.id) > (coalesce(p.ended, timestamptz 'epoch'), coalesce(p.after, 0))
        AND e.ended <= clock_timestamp() - %(settle_s)s * interval '1 second'
    OFFSET coalesce(least(%(most)s, greatest(%(first)s, p.learned / 4)), %(first)s) - 1 LIMIT 1
)
FROM page LEFT JOIN LATERAL (
    SELECT trained_to AS ended, (state ->> 'after')::bigint AS after,
        (state ->> 'learned')::integer AS learned
    FROM memory_policies AS m
    WHERE m.tenant = page.tenant AND m.features = %(features)s::text[]
    ORDER BY version DESC LIMIT 1
) AS p ON true
WHERE page.tenant IS NOT NULL ORDER BY 1

-- name: try_lock
-- Whether this session may train a tenant's policy; until it unlocks, or ends.
SELECT pg_try_advisory_lock(hashtextextended('headstart policy ' || %(tenant)s, 0))

-- name: unlock
SELECT pg_advisory_unlock(hashtextextended('headstart policy ' || %(tenant)s, 0))

-- name: newest
-- The version that the next one begins from.
SELECT version, features, weights, accumulators, examples,
    (extract(epoch FROM trained_to) * 1000)::bigint, state
FROM memory_policies WHERE tenant = %(tenant)s ORDER BY version DESC LIMIT 1

-- name: boundary
-- The last run of the next version: none if too few have finished. Runs that ended a moment ago
-- wait, because others that ended before may still be assembled.
SELECT (extract(epoch FROM ended) * 1000)::bigint, id FROM episodes AS e
WHERE tenant = %(tenant)s AND outcome IS NOT NULL AND memory_has_query(e) AND memory_has_calls(e)
    AND e.state <> 'quarantined'
    AND (ended, id) > (timestamptz 'epoch' + %(ended)s * interval '1 millisecond', %(id)s)
    AND ended <= clock_timestamp() - %(settle_s)s * interval '1 second'
ORDER BY ended, id OFFSET %(before)s LIMIT 1

-- name: kinds
-- The workflow types of a version's runs.
SELECT DISTINCT workflow_type FROM episodes AS e
WHERE tenant = %(tenant)s AND outcome IS NOT NULL AND memory_has_query(e) AND memory_has_calls(e)
    AND e.state <> 'quarantined'
    AND (ended, id) > (timestamptz 'epoch' + %(ended)s * interval '1 millisecond', %(id)s)
    AND (ended, id) <= (timestamptz 'epoch' + %(to_ended)s * interval '1 millisecond', %(to_id)s)
ORDER BY 1

-- name: runs
-- A version's next runs, in the order in which they are learned.
SELECT e.id, e.workflow_type, e.user_id, e.agent_id, e.session_id, e.workflow_id, e.query, e.tools,
    e.reward, (extract(epoch FROM e.started) * 1000)::bigint,
    (extract(epoch FROM e.ended) * 1000)::bigint, {vector}, e.sealed
FROM episodes AS e {join}
WHERE e.tenant = %(tenant)s AND e.outcome IS NOT NULL AND memory_has_query(e)
    AND memory_has_calls(e)
    AND e.state <> 'quarantined'
    AND (e.ended, e.id) > (timestamptz 'epoch' + %(ended)s * interval '1 millisecond', %(id)s)
    AND (e.ended, e.id)
        <= (timestamptz 'epoch' + %(to_ended)s * interval '1 millisecond', %(to_id)s)
ORDER BY e.ended, e.id LIMIT %(limit)s

-- name: window
-- The newest runs of a workflow type that were learned before, newest first.
SELECT e.id, e.workflow_type, e.user_id, e.agent_id, e.session_id, e.workflow_id, e.query, e.tools,
    e.reward, (extract(epoch FROM e.started) * 1000)::bigint,
    (extract(epoch FROM e.ended) * 1000)::bigint, {vector}, e.sealed
FROM episodes AS e {join}
WHERE e.tenant = %(tenant)s AND e.workflow_type = %(kind)s AND e.state = 'live'
    AND e.outcome IS NOT NULL
    AND memory_has_query(e) AND memory_has_calls(e)
    AND (e.ended, e.id) <= (timestamptz 'epoch' + %(ended)s * interval '1 millisecond', %(id)s)
ORDER BY e.ended DESC, e.id DESC LIMIT %(limit)s

-- name: learned
-- Whether a run is still there.
SELECT true FROM episodes WHERE tenant = %(tenant)s AND id = %(id)s

-- name: retire
-- The version that was used so far, when there is a newer judgement.
UPDATE memory_policies SET status = 'old' WHERE tenant = %(tenant)s AND status = 'active'

-- name: add
-- A trained version; nothing if another worker has added it.
INSERT INTO memory_policies (
    tenant, version, features, weights, accumulators, examples, trained_to, metrics, status, state
) VALUES (
    %(tenant)s, %(version)s, %(features)s, %(weights)s, %(accumulators)s, %(examples)s,
    timestamptz 'epoch' + %(ended)s * interval '1 millisecond', %(metrics)s, %(status)s, %(state)s
) ON CONFLICT (tenant, version) DO NOTHING

-- name: forget
-- Versions that are too old to be kept.
DELETE FROM memory_policies WHERE tenant = %(tenant)s AND version <= %(version)s

-- name: versions
-- The versions of a tenant, newest first.
SELECT version, status, examples, (extract(epoch FROM trained_to) * 1000)::bigint AS trained_to,
    (extract(epoch FROM trained_at) * 1000)::bigint AS trained_at, metrics, features, weights
FROM memory_policies WHERE tenant = %(tenant)s ORDER BY version DESC LIMIT %(limit)s

-- name: judged_tenants
-- Tenants whose uses of episodes were judged since a time, by a verdict or by a reward; and those of
-- which something was purged, maybe some of these judgements.
SELECT tenant FROM memory_retrievals
WHERE stage = 'evaluate' AND data ?| ARRAY['accepted', 'reward']
    AND at > clock_timestamp() - %(within_s)s * interval '1 second'
UNION
SELECT tenant FROM memory_purges
WHERE greatest(at, erased_at) > clock_timestamp() - %(within_s)s * interval '1 second'
ORDER BY tenant

-- name: forget_retrievals
-- Some rows of retrievals that are older than they are kept.
DELETE FROM memory_retrievals WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM memory_retrievals
    WHERE at < clock_timestamp() - %(days)s * interval '1 day'
    LIMIT %(limit)s
))
