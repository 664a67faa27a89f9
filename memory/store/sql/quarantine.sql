-- Quarantine: which episodes are left out, as a function of the stored rows.

-- name: judge
-- Judges runs (`runs`: `touched` or `of_tenant`), and returns those whose state changes. Of each user
-- and session, and of those that name neither, the first ones of a window count, in the order of their
-- beginnings; merged and pruned ones take a place, too. A flood: of a window with `fewest` judged runs
-- or more, of a low mean reward, and with `faster` times as many runs as other users have in a window
-- of the last `windows`, or while a notice of a flood holds. Notices are deleted in time, so what one
-- led to stays while rewards are low.
WITH released AS (
    SELECT a.tenant, a.user_id, a.counts ->> 'session' AS session_id,
        coalesce((a.counts ->> 'unnamed')::boolean, false) AS unnamed,
        max((a.counts ->> 'to')::bigint) AS to_ms
    FROM memory_audit AS a
    WHERE a.action = 'release' AND a.tenant = ANY (%(of)s::text[])
    GROUP BY 1, 2, 3, 4
), run AS (
    {runs}
), ranked AS (
    SELECT run.*,
        row_number() OVER (PARTITION BY tenant, user_id, place ORDER BY started, id) AS of_user,
        row_number() OVER (
            PARTITION BY tenant, user_id, session_id, place ORDER BY started, id) AS of_session
    FROM run
), low AS (
    SELECT tenant, user_id, place, count(*) AS runs, bool_or(quarantine = 'flood notice') AS noticed
    FROM run WHERE user_id IS NOT NULL AND %(low_reward)s > 0
    GROUP BY 1, 2, 3
    HAVING count(reward) >= %(fewest)s AND avg(reward) <= %(low_reward)s
), flood AS (
    SELECT low.tenant, low.user_id, low.place, found.noticed
    FROM low CROSS JOIN LATERAL (
        SELECT coalesce(low.noticed, false) OR EXISTS (
            SELECT FROM notices AS n
            WHERE n.tenant = low.tenant AND n.kind = 'anomaly' AND n.evidence ->> 'what' = 'user'
                AND n.evidence ->> 'user' = low.user_id AND (n.evidence ->> 'every')::float8 > 1
                AND n.at_ms < (low.place + 1) * %(window_s)s * 1000
                AND (n.evidence ->> 'until')::float8 > low.place * %(window_s)s * 1000
        ) AS noticed, low.runs >= %(faster)s * (
            SELECT count(*)::float8
                / nullif(count(DISTINCT (
                    o.user_id, floor(extract(epoch FROM o.started))::bigint / %(window_s)s)), 0)
            FROM episodes AS o
            WHERE o.tenant = low.tenant AND o.user_id <> low.user_id AND o.user_id <> ''
                AND o.ended >= to_timestamp((low.place - %(windows)s + 1) * %(window_s)s)
                AND o.started >= to_timestamp((low.place - %(windows)s + 1) * %(window_s)s)
                AND o.started < to_timestamp((low.place + 1) * %(window_s)s)
        ) AS fast
    ) AS found
    WHERE found.noticed OR found.fast
), judged AS (
    SELECT r.tenant, r.id, r.state, r.quarantine, CASE
        WHEN EXISTS (
            SELECT FROM released AS x
            WHERE x.tenant = r.tenant AND (x.user_id IS NULL OR x.user_id = r.user_id)
                AND (x.session_id IS NULL OR x.session_id = r.session_id)
                AND (NOT x.unnamed OR (r.user_id IS NULL AND r.session_id IS NULL))
                AND r.started <= timestamptz 'epoch' + x.to_ms * interval '1 millisecond'
        ) THEN NULL
        WHEN f.noticed THEN 'flood notice'
        WHEN f.place IS NOT NULL THEN 'low-reward flood'
        WHEN r.user_id IS NOT NULL AND r.of_user > %(user)s THEN 'user rate'
        WHEN r.session_id IS NOT NULL AND r.of_session > %(session)s THEN 'session rate'
        WHEN r.user_id IS NULL AND r.session_id IS NULL AND r.of_session > %(unnamed)s
            THEN 'unnamed rate'
    END AS reason
    FROM ranked AS r
    LEFT JOIN flood AS f ON f.tenant = r.tenant AND f.user_id = r.user_id AND f.place = r.place
)
UPDATE episodes AS e
SET state = CASE WHEN j.reason IS NULL THEN 'live' ELSE 'quarantined' END, quarantine = j.reason
FROM judged AS j
WHERE j.state IN ('live', 'quarantined') AND j.quarantine IS DISTINCT FROM j.reason
    AND e.tenant = j.tenant AND e.id = j.id AND e.state IN ('live', 'quarantined')
RETURNING e.tenant, e.id, e.quarantine, e.support

-- name: touched
-- The runs of these users since a time, those of sessions that name no user, and those of windows that
-- name neither; the last by episodes_unnamed.
SELECT e.tenant, e.id, e.user_id, nullif(e.session_id, '') AS session_id, e.started, e.reward,
    e.state, e.quarantine, floor(extract(epoch FROM e.started))::bigint / %(window_s)s AS place
FROM unnest(%(tenants)s::text[], %(users)s::text[], %(sinces)s::bigint[])
    AS t (tenant, user_id, since_ms)
JOIN episodes AS e ON e.tenant = t.tenant AND e.user_id = t.user_id
    AND e.ended >= timestamptz 'epoch' + t.since_ms * interval '1 millisecond'
    AND e.started >= timestamptz 'epoch' + t.since_ms * interval '1 millisecond'
UNION ALL
SELECT e.tenant, e.id, NULL, e.session_id, e.started, e.reward, e.state, e.quarantine,
    floor(extract(epoch FROM e.started))::bigint / %(window_s)s
FROM unnest(%(unnamed_tenants)s::text[], %(sessions)s::text[], %(session_sinces)s::bigint[])
    AS t (tenant, session_id, since_ms)
JOIN episodes AS e ON e.tenant = t.tenant AND e.session_id = t.session_id AND e.user_id IS NULL
    AND e.started >= timestamptz 'epoch' + t.since_ms * interval '1 millisecond'
UNION ALL
SELECT e.tenant, e.id, NULL, NULL, e.started, e.reward, e.state, e.quarantine,
    floor(extract(epoch FROM e.started))::bigint / %(window_s)s
FROM unnest(%(windows_of)s::text[], %(window_sinces)s::bigint[]) AS t (tenant, since_ms)
JOIN episodes AS e ON e.tenant = t.tenant AND e.user_id IS NULL AND e.session_id IS NULL
    AND e.started >= timestamptz 'epoch' + t.since_ms * interval '1 millisecond'
    AND e.started < timestamptz 'epoch' + (t.since_ms + %(window_s)s * 1000) * interval '1 millisecond'

-- name: of_tenant
-- All runs of a tenant.
SELECT e.tenant, e.id, nullif(e.user_id, '') AS user_id, nullif(e.session_id, '') AS session_id,
    e.started, e.reward, e.state, e.quarantine,
    floor(extract(epoch FROM e.started))::bigint / %(window_s)s AS place
FROM episodes AS e WHERE e.tenant = %(tenant)s

-- name: free_members
-- Runs that were merged into quarantined ones are assembled again, and so stand for themselves.
INSERT INTO episode_outbox (tenant, workflow_id, first_at, last_at)
SELECT m.tenant, m.workflow_id, m.started, m.ended FROM episodes AS m
WHERE m.tenant = %(tenant)s AND m.merged_into = ANY (%(ids)s::bigint[]) AND m.state = 'merged'

-- name: quarantined_of
-- Those of some episodes that are quarantined.
SELECT e.tenant, e.id FROM unnest(%(tenants)s::text[], %(ids)s::bigint[]) AS of (tenant, id)
JOIN episodes AS e ON e.tenant = of.tenant AND e.id = of.id
WHERE e.state = 'quarantined'

-- name: count
-- How many episodes are quarantined; uses episodes_quarantined.
SELECT count(*) FROM episodes WHERE state = 'quarantined'

-- name: batches
-- Quarantined episodes by writer and reason, the newest first; uses episodes_quarantined.
SELECT tenant, user_id, CASE WHEN user_id IS NULL THEN session_id END AS session_id,
    coalesce(quarantine, 'by hand') AS reason, count(*) AS episodes, avg(reward)::float8 AS reward,
    (extract(epoch FROM min(started)) * 1000)::bigint AS first,
    (extract(epoch FROM max(started)) * 1000)::bigint AS last
FROM episodes
WHERE state = 'quarantined' AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
GROUP BY 1, 2, 3, 4 ORDER BY last DESC, 1, 2, 3, 4 LIMIT %(limit)s

-- name: release
-- The quarantined episodes of a user, a session, those that name neither, or all of the tenant.
UPDATE episodes SET state = 'live', quarantine = NULL
WHERE tenant = %(tenant)s AND state = 'quarantined'
    AND (%(user_id)s::text IS NULL OR user_id = %(user_id)s)
    AND (%(session_id)s::text IS NULL OR session_id = %(session_id)s)
    AND (NOT %(unnamed)s OR (coalesce(user_id, '') = '' AND coalesce(session_id, '') = ''))
RETURNING (extract(epoch FROM started) * 1000)::bigint

-- name: note_release
-- By this row they are not quarantined again; a release of nothing is no release.
INSERT INTO memory_audit (tenant, user_id, action, counts)
VALUES (%(tenant)s, %(user_id)s, 'release', %(counts)s)
