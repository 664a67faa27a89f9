-- What the memory worker runs, in the order of one of its transactions.

-- name: plan_by_index
-- A few hundred runs among millions of events: by index, whatever the statistics say. Until the end
-- of the transaction.
SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)

-- name: take
-- Rows of the outbox that are old enough, are not postponed, and that no other worker has.
DELETE FROM episode_outbox WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM episode_outbox
    WHERE noted <= clock_timestamp() - %(debounce_s)s * interval '1 second'
        AND (tenant, workflow_id) NOT IN (
            SELECT * FROM unnest(%(tenants)s::text[], %(workflow_ids)s::text[])
        )
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
))
RETURNING tenant, workflow_id, (extract(epoch FROM first_at) * 1000)::bigint,
    (extract(epoch FROM last_at) * 1000)::bigint

-- name: drop
DELETE FROM episode_outbox WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM episode_outbox
    WHERE (tenant, workflow_id) IN (
        SELECT * FROM unnest(%(tenants)s::text[], %(workflow_ids)s::text[])
    )
    FOR UPDATE SKIP LOCKED
))

-- name: known
-- Episodes of these runs, locked: whoever assembles one of them waits.
SELECT e.tenant, e.workflow_id, e.workflow_type, (extract(epoch FROM e.started) * 1000)::bigint,
    (extract(epoch FROM e.ended) * 1000)::bigint
FROM unnest(%(tenants)s::text[], %(workflow_ids)s::text[]) AS run (tenant, workflow_id)
JOIN episodes AS e ON e.tenant = run.tenant AND e.workflow_id = run.workflow_id
ORDER BY e.tenant, e.workflow_id, e.workflow_type
FOR NO KEY UPDATE OF e

-- name: events
-- The stored events of runs, each within its own times; the outer ones leave out partitions. What a
-- tool gave is not part of an episode, and most of the bytes.
SELECT run.number, e.workflow_type, (extract(epoch FROM e.timestamp) * 1000)::bigint, e.id::text,
    e.event_type, e.task_id, e.user_id, e.agent_id, e.session_id, e.tool_id, e.success,
    e.confidence, (e.data #- '{result,output}')::text
FROM unnest(
    %(numbers)s::integer[], %(tenants)s::text[], %(workflow_ids)s::text[], %(firsts)s::bigint[],
    %(lasts)s::bigint[]
) AS run (number, tenant, workflow_id, first_ms, last_ms)
JOIN episodic_events AS e ON e.workflow_id = run.workflow_id AND e.tenant = run.tenant
    AND e.timestamp >= timestamptz 'epoch' + run.first_ms * interval '1 millisecond'
    AND e.timestamp < timestamptz 'epoch' + run.last_ms * interval '1 millisecond'
WHERE e.timestamp >= timestamptz 'epoch' + %(first)s * interval '1 millisecond'
    AND e.timestamp < timestamptz 'epoch' + %(last)s * interval '1 millisecond'
ORDER BY run.number, e.workflow_type, e.timestamp, e.id

-- name: upsert
-- One JSON document for all: arrays of arrays cannot be parameters. A row of more events stays; so
-- does one that would not change, because a new version of it would have to be vacuumed.
INSERT INTO episodes AS old (
    id, tenant, workflow_type, workflow_id, user_id, agent_id, session_id, started, ended, outcome,
    reward, confidence, duration_ms, cost_ms, query, query_hash, context, context_hash, first_call,
    tools, calls, concepts, domains, agents_used, insights, reference_ids, response, events, sealed
)
SELECT
    id, tenant, workflow_type, workflow_id, user_id, agent_id, session_id,
    timestamptz 'epoch' + started * interval '1 millisecond',
    timestamptz 'epoch' + ended * interval '1 millisecond', outcome, reward, confidence,
    duration_ms, cost_ms, query, query_hash, context, context_hash, first_call, tools,
    decode(calls, 'base64'), concepts, domains, agents_used, insights, reference_ids, response,
    events, decode(sealed, 'base64')
FROM json_to_recordset(%(episodes)s::json) AS given (
    id bigint, tenant text, workflow_type text, workflow_id text, user_id text, agent_id text,
    session_id text, started bigint, ended bigint, outcome text, reward real, confidence real,
    duration_ms real, cost_ms real, query text, query_hash bigint, context jsonb,
    context_hash bigint, first_call bigint, tools text[], calls text, concepts text[],
    domains text[], agents_used text[], insights text[], reference_ids bigint[], response text,
    events integer, sealed text
)
ON CONFLICT (tenant, workflow_id, workflow_type) DO UPDATE SET
    user_id = excluded.user_id, agent_id = excluded.agent_id, session_id = excluded.session_id,
    started = excluded.started, ended = excluded.ended, outcome = excluded.outcome,
    reward = excluded.reward, confidence = excluded.confidence,
    duration_ms = excluded.duration_ms, cost_ms = excluded.cost_ms, query = excluded.query,
    query_hash = excluded.query_hash, context = excluded.context,
    context_hash = excluded.context_hash, first_call = excluded.first_call,
    tools = excluded.tools, calls = excluded.calls, concepts = excluded.concepts,
    domains = excluded.domains, agents_used = excluded.agents_used, insights = excluded.insights,
    reference_ids = excluded.reference_ids, response = excluded.response, events = excluded.events,
    sealed = excluded.sealed,
    -- A run that was merged or pruned stands for itself again: see merging.sql.
    state = CASE old.state WHEN 'quarantined' THEN old.state ELSE 'live' END,
    quarantine = CASE old.state WHEN 'quarantined' THEN old.quarantine END,
    support = greatest(old.support, 1)
WHERE excluded.events > old.events OR excluded.events = old.events AND (
        excluded.user_id, excluded.agent_id, excluded.session_id, excluded.started,
        excluded.ended, excluded.outcome, excluded.reward, excluded.confidence,
        excluded.duration_ms, excluded.cost_ms, excluded.query, excluded.context, excluded.tools,
        excluded.calls, excluded.concepts, excluded.domains, excluded.agents_used,
        excluded.insights, excluded.reference_ids, excluded.response,
        substr(excluded.sealed, 1, 12)  -- the rest differs each time
    ) IS DISTINCT FROM (
        old.user_id, old.agent_id, old.session_id, old.started, old.ended, old.outcome,
        old.reward, old.confidence, old.duration_ms, old.cost_ms, old.query, old.context,
        old.tools, old.calls, old.concepts, old.domains, old.agents_used, old.insights,
        old.reference_ids, old.response, substr(old.sealed, 1, 12)
    )
RETURNING tenant, id, xmax = 0

-- name: lag
-- How many rows wait in the outbox, and for how long the oldest has.
SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(noted)), 0)::float8
FROM episode_outbox
WHERE (tenant, workflow_id) NOT IN (
    SELECT * FROM unnest(%(tenants)s::text[], %(workflow_ids)s::text[])
)

-- name: statement_age
-- For how long a backend has executed its statement, or waited for a lock. One that waits for its
-- client to read or send is not executing.
SELECT extract(epoch FROM clock_timestamp() - query_start)::float8
FROM pg_stat_activity
WHERE pid = %(pid)s AND state = 'active' AND wait_event_type IS DISTINCT FROM 'Client'

-- name: fill_outbox
-- All runs of a tenant, or of all, whose stored events are of a time: the worker assembles them.
INSERT INTO episode_outbox (tenant, workflow_id, first_at, last_at)
SELECT tenant, workflow_id, min(first_at), max(last_at) FROM (
    SELECT tenant, workflow_id, min(timestamp) AS first_at, max(timestamp) AS last_at
    FROM episodic_events
    WHERE timestamp >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
        AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    GROUP BY tenant, workflow_id
    UNION ALL
    SELECT tenant, workflow_id, started, ended FROM episodes
    WHERE trace IS NOT NULL AND ended >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
        AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
) AS run
GROUP BY tenant, workflow_id

-- name: episodes
-- Episodes as they are exported, in the order of their keys, from one key on; merged ones with the
-- content of the episode that counts them, `content_id`, for which it was sealed.
SELECT e.id, e.tenant, e.workflow_type, e.workflow_id, e.user_id, e.agent_id, e.session_id,
    (extract(epoch FROM e.started) * 1000)::bigint AS started,
    (extract(epoch FROM e.ended) * 1000)::bigint AS ended, e.outcome, e.reward, e.confidence,
    e.duration_ms, e.cost_ms, c.query, c.query_hash, c.context, e.context_hash, c.first_call,
    c.calls, c.concepts, c.domains, c.agents_used, e.insights, e.reference_ids, e.response, e.events,
    c.sealed, c.id AS content_id
FROM episodes AS e
JOIN episodes AS c ON c.tenant = e.tenant AND c.id = coalesce(e.merged_into, e.id)
WHERE (%(tenant)s::text IS NULL OR e.tenant = %(tenant)s)
    AND (e.tenant, e.workflow_id, e.workflow_type)
        > (%(after_tenant)s::text, %(after_id)s::text, %(after_type)s::text)
    AND e.ended >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
    AND e.state <> 'pruned' AND (%(quarantined)s OR e.state <> 'quarantined')
ORDER BY e.tenant, e.workflow_id, e.workflow_type
LIMIT %(limit)s

-- name: find
-- The episodes of one id, or of one workflow id; by its id also a pruned one, whose packed events are
-- left.
SELECT e.id, e.tenant, e.workflow_type, e.workflow_id, e.user_id, e.agent_id, e.session_id,
    (extract(epoch FROM e.started) * 1000)::bigint AS started,
    (extract(epoch FROM e.ended) * 1000)::bigint AS ended, e.outcome, e.reward, e.confidence,
    e.duration_ms, e.cost_ms, c.query, c.query_hash, c.context, e.context_hash, c.first_call,
    c.calls, c.concepts, c.domains, c.agents_used, e.insights, e.reference_ids, e.response, e.events,
    c.sealed, c.id AS content_id
FROM episodes AS e
JOIN episodes AS c ON c.tenant = e.tenant AND c.id = coalesce(e.merged_into, e.id)
WHERE e.tenant = %(tenant)s
    AND (e.id = %(id)s OR e.workflow_id = %(workflow_id)s AND e.state <> 'pruned')
ORDER BY e.workflow_type

-- name: states
-- Whether episodes are live, or why they are not retrieved.
SELECT id, state FROM episodes WHERE tenant = %(tenant)s AND id = ANY (%(ids)s::bigint[])

-- name: totals
-- Counts over the episodes of a tenant, or of all.
SELECT count(*) AS episodes, count(DISTINCT tenant) AS tenants, coalesce(sum(events), 0) AS events,
    count(*) FILTER (WHERE memory_has_query(episodes) OR state = 'merged') AS with_query,
    count(sealed) AS encrypted,
    count(DISTINCT (tenant, query_hash)) FILTER (WHERE state <> 'merged') AS queries,
    count(outcome) AS finished, count(*) FILTER (WHERE outcome = 'success') AS successes,
    avg(confidence) AS average_confidence, avg(reward) AS average_reward,
    sum(cost_ms) AS total_cost_ms, avg(duration_ms) AS average_duration_ms,
    (extract(epoch FROM min(started)) * 1000)::bigint AS first_at,
    (extract(epoch FROM max(ended)) * 1000)::bigint AS last_at,
    count(*) FILTER (WHERE state = 'merged') AS merged,
    count(*) FILTER (WHERE state = 'quarantined') AS quarantined
FROM episodes WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s) AND state <> 'pruned'

-- name: outcomes
SELECT coalesce(outcome, 'open'), count(*) FROM episodes
WHERE (%(tenant)s::text IS NULL OR tenant = %(tenant)s) AND state <> 'pruned'
GROUP BY 1 ORDER BY 2 DESC, 1

-- name: concepts
-- The most frequent, with the number of different ones.
SELECT name, sum(support)::bigint, count(*) OVER () FROM episodes, unnest(concepts) AS name
WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s
GROUP BY name ORDER BY 2 DESC, 1 LIMIT %(limit)s

-- name: related_concepts
-- Pairs of concepts that more than a share of a tenant's runs with a concept have together.
WITH run AS (
    SELECT tenant, support, concepts FROM episodes
    WHERE concepts <> '{}' AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
), total AS (
    SELECT tenant, sum(support) AS runs FROM run GROUP BY tenant
), frequent AS (
    SELECT run.tenant, name, total.runs FROM run JOIN total USING (tenant), unnest(concepts) AS name
    GROUP BY run.tenant, name, total.runs HAVING sum(support) > %(share)s * total.runs
)
SELECT run.tenant, a.name AS a, b.name AS b, sum(support)::bigint AS episodes,
    round(sum(support) / a.runs::numeric, 3)::float8 AS share
FROM run
JOIN frequent AS a ON a.tenant = run.tenant AND a.name = ANY (run.concepts)
JOIN frequent AS b ON b.tenant = run.tenant AND b.name = ANY (run.concepts)
    AND a.name COLLATE "C" < b.name COLLATE "C"
GROUP BY run.tenant, a.name, b.name, a.runs HAVING sum(support) > %(share)s * a.runs
ORDER BY 5 DESC, 1, 2, 3 LIMIT %(limit)s

-- name: domains
SELECT name, sum(support)::bigint, count(*) OVER () FROM episodes, unnest(domains) AS name
WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s
GROUP BY name ORDER BY 2 DESC, 1 LIMIT %(limit)s

-- name: tools
SELECT name, sum(support)::bigint, count(*) OVER () FROM episodes, unnest(tools) AS name
WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s
GROUP BY name ORDER BY 2 DESC, 1 LIMIT %(limit)s

-- name: agents
SELECT name, sum(support)::bigint, count(*) OVER () FROM episodes, unnest(agents_used) AS name
WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s
GROUP BY name ORDER BY 2 DESC, 1 LIMIT %(limit)s

-- name: size
-- Bytes on disk, indexes included.
SELECT pg_total_relation_size('episodes') + coalesce((
    SELECT sum(pg_total_relation_size(relid))
    FROM pg_partition_tree(to_regclass('episode_vectors'))
), 0)
