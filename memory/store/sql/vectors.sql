-- Vectors and their models.

-- name: has_vectors
-- Whether the database could have the table: see sinks/postgres/sql/memory_schema.sql.
SELECT to_regclass('episode_vectors') IS NOT NULL

-- name: add_model
-- A model that was not known before.
INSERT INTO memory_models (name, dimensions, state)
VALUES (%(name)s, %(dimensions)s, 'filling') ON CONFLICT (name) DO NOTHING

-- name: model
SELECT id, dimensions, state FROM memory_models WHERE name = %(name)s

-- name: activate_first
-- The first model answers at once; a later one when all episodes have its vectors.
UPDATE memory_models SET state = 'active', since = clock_timestamp()
WHERE id = %(id)s AND NOT EXISTS (SELECT FROM memory_models WHERE state = 'active')

-- name: refill
-- An old model that is chosen again.
UPDATE memory_models SET state = 'filling', since = clock_timestamp()
WHERE id = %(id)s AND state = 'old'

-- name: retire
UPDATE memory_models SET state = 'old', since = clock_timestamp()
WHERE state = 'active' AND id <> %(id)s

-- name: activate
UPDATE memory_models SET state = 'active', since = clock_timestamp() WHERE id = %(id)s

-- name: models
SELECT name, dimensions, state, (extract(epoch FROM since) * 1000)::bigint AS since
FROM memory_models ORDER BY id

-- name: hashes
-- The texts of which these episodes have vectors of a model.
SELECT v.tenant, v.episode, v.text_hash
FROM unnest(%(tenants)s::text[], %(episodes)s::bigint[]) AS of (tenant, episode)
JOIN episode_vectors AS v ON v.tenant = of.tenant AND v.episode = of.episode
    AND v.model = %(model)s

-- name: present
-- Those of some episodes that are live and have a text, locked until the transaction ends: a purge waits
-- until their vectors are stored.
SELECT e.tenant, e.id
FROM unnest(%(tenants)s::text[], %(episodes)s::bigint[]) AS of (tenant, episode)
JOIN episodes AS e ON e.tenant = of.tenant AND e.id = of.episode
WHERE e.state = 'live' AND memory_has_query(e)
ORDER BY e.tenant, e.id
FOR NO KEY UPDATE OF e

-- name: drop_stale
-- Vectors, of any model, of a text that the episode no longer has: -1 stands for no text.
DELETE FROM episode_vectors AS v
USING unnest(%(tenants)s::text[], %(episodes)s::bigint[], %(hashes)s::bigint[])
    AS of (tenant, episode, text_hash)
WHERE v.tenant = of.tenant AND v.episode = of.episode AND v.text_hash <> of.text_hash

-- name: keep_current
-- What is filtered by beside the vectors.
UPDATE episode_vectors AS v
SET outcome = of.outcome, ended = timestamptz 'epoch' + of.ended * interval '1 millisecond'
FROM unnest(
    %(tenants)s::text[], %(episodes)s::bigint[], %(outcomes)s::text[], %(endeds)s::bigint[]
) AS of (tenant, episode, outcome, ended)
WHERE v.tenant = of.tenant AND v.episode = of.episode
    AND (v.outcome IS DISTINCT FROM of.outcome
        OR v.ended <> timestamptz 'epoch' + of.ended * interval '1 millisecond')

-- name: put
-- Vectors; NULL where a text has none. One statement: each costs as much as a tenth of an insertion.
INSERT INTO episode_vectors (tenant, episode, model, workflow_type, outcome, ended, text_hash, v)
SELECT tenant, episode, %(model)s, workflow_type, outcome,
    timestamptz 'epoch' + ended * interval '1 millisecond', text_hash, v
FROM unnest(
    %(tenants)s::text[], %(episodes)s::bigint[], %(workflow_types)s::text[], %(outcomes)s::text[],
    %(endeds)s::bigint[], %(hashes)s::bigint[], %(vectors)b::halfvec[]
) AS given (tenant, episode, workflow_type, outcome, ended, text_hash, v)
ON CONFLICT (tenant, episode, model) DO UPDATE SET
    outcome = excluded.outcome, ended = excluded.ended, text_hash = excluded.text_hash,
    v = excluded.v

-- name: missing
-- The next episodes without a vector of a model, in the order of their keys, locked: their texts
-- do not change meanwhile.
SELECT e.tenant, e.id, e.workflow_type, e.outcome, (extract(epoch FROM e.ended) * 1000)::bigint,
    e.query, e.sealed
FROM episodes AS e
WHERE memory_has_query(e) AND e.state <> 'quarantined' AND (e.tenant, e.id) > (%(tenant)s, %(id)s)
    AND NOT EXISTS (
        SELECT FROM episode_vectors AS v
        WHERE v.tenant = e.tenant AND v.episode = e.id AND v.model = %(model)s
    )
ORDER BY e.tenant, e.id
LIMIT %(limit)s
FOR NO KEY UPDATE OF e

-- name: count_missing
-- How many episodes have no vector of a model, and how many want one.
SELECT count(*) FILTER (WHERE NOT EXISTS (
        SELECT FROM episode_vectors AS v
        WHERE v.tenant = e.tenant AND v.episode = e.id AND v.model = %(model)s
    )), count(*)
FROM episodes AS e WHERE memory_has_query(e) AND e.state <> 'quarantined'
