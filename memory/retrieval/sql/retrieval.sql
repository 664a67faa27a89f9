-- What retrieval asks, each within a transaction whose `headstart.tenant` is set. {filter} is a
-- memory_filter; {join} and {passes} are empty where the columns of episode_vectors are enough.

-- name: settings
-- Of this transaction only: a setting of the session would stay when the pool lends it again.
SELECT set_config('headstart.tenant', %(tenant)s, true),
    set_config('statement_timeout', %(timeout)s, true),
    set_config('plan_cache_mode', 'force_custom_plan', true),
    set_config('hnsw.iterative_scan', 'relaxed_order', true),
    set_config('hnsw.ef_search', '200', true),
    set_config('jit', 'off', true),
    set_config('role', %(role)s, true)

-- name: may_be_reader
-- Whether the role exists and may be taken.
SELECT EXISTS (SELECT FROM pg_roles
    WHERE rolname = 'headstart_reader' AND pg_has_role(session_user, oid,
        CASE WHEN current_setting('server_version_num')::integer >= 160000
            THEN 'SET' ELSE 'MEMBER' END))

-- name: model
-- The embedding model whose vectors are searched.
SELECT id, name, dimensions FROM memory_models WHERE state = 'active'

-- name: profiles
-- What the user who asks has set, for all agents and for one.
SELECT agent_id, enabled, window_size, window_days, shared FROM memory_profiles
WHERE tenant = %(tenant)s AND user_id = %(user_id)s AND agent_id IN ('', %(agent_id)s)

-- name: any_off
-- Whether the memory of any user of the tenant is off; uses memory_profiles_off.
SELECT EXISTS (SELECT FROM memory_profiles WHERE tenant = %(tenant)s AND NOT enabled)

-- name: hidden_cases
-- The oldest of the user's own cases that a profile lets through, and whether there are others, which
-- it does not; uses episodes_user. Merged and pruned runs are no cases: they take no place.
WITH own AS (
    SELECT agent_id, ended FROM episodes
    WHERE tenant = %(tenant)s AND user_id = %(user_id)s AND state = 'live'
), passing AS (
    SELECT ended FROM own
    WHERE (%(own_agent)s::text IS NULL OR coalesce(agent_id, '') = %(own_agent)s)
        AND (%(days)s::integer IS NULL OR ended >= now() - %(days)s * interval '1 day')
    ORDER BY ended DESC LIMIT %(size)s
)
SELECT coalesce((SELECT min(ended) FROM passing), 'infinity')::text,
    (SELECT count(*) FROM own) > (SELECT count(*) FROM passing)

-- name: all_profiles
-- The profiles of a tenant's users, for cases that a process keeps.
SELECT user_id, agent_id, enabled, window_size, window_days, shared FROM memory_profiles
WHERE tenant = %(tenant)s

-- name: policy
-- The newest version of the tenant's ranking policy, and how rankings have stood so far.
SELECT version, status, features, weights, state -> 'standing' FROM memory_policies
WHERE tenant = %(tenant)s ORDER BY version DESC LIMIT 1

-- name: lexemes
-- The words of a query, as they are indexed.
SELECT tsvector_to_array(to_tsvector('simple', %(text)s))

-- name: word_shares
-- The frequent words of this transaction's tenant, by the number of sampled episodes that have them.
-- Ids are hashes: the first ones are a random sample.
SELECT word, ndoc FROM ts_stat(format(
    'SELECT words FROM episodes WHERE tenant = %%L AND state = ''live'' ORDER BY id LIMIT %%s',
    current_setting('headstart.tenant'), %(sample)s::integer))
WHERE ndoc > 1 ORDER BY ndoc DESC LIMIT 2000

-- name: count_episodes
SELECT count(*) FROM (
    SELECT FROM episodes WHERE tenant = %(tenant)s AND state = 'live' LIMIT 1000000
) s

-- name: equal_query
-- Equal folded query, newest first; uses episodes_query.
SELECT e.id FROM episodes e
WHERE e.tenant = %(tenant)s AND e.query_hash = %(query_hash)s AND memory_passes(e, {filter})
ORDER BY e.ended DESC, e.id LIMIT %(k)s

-- name: newest_of_writers
-- The newest finished run of each writer with an equal folded query, in a context with equal values of
-- chosen keys, or of all; that of the asking writer first. Runs that name neither user nor agent are
-- one writer (memory.cases.writers). Uses episodes_query.
SELECT id FROM (
    SELECT DISTINCT ON (w.writer) e.id, e.ended, w.writer = %(writer)s AS own
    FROM episodes e, LATERAL (SELECT coalesce(
        'user:' || nullif(e.user_id, ''), 'agent:' || nullif(e.agent_id, ''), 'run:') AS writer) w
    WHERE e.tenant = %(tenant)s AND e.query_hash = ANY (%(hashes)s) AND e.outcome IS NOT NULL
        AND memory_passes(e, {filter})
        AND CASE WHEN %(keys)s::text[] IS NULL THEN e.context = %(part)s::jsonb
            ELSE coalesce((SELECT jsonb_object_agg(c.key, c.value) FROM jsonb_each(e.context) c
                WHERE c.key = ANY (%(keys)s)), '{}') = %(part)s::jsonb END
    ORDER BY w.writer, e.ended DESC, e.id DESC
) s ORDER BY own DESC, ended DESC, id DESC LIMIT %(k)s

-- name: equal_context
-- Equal workflow type, domain and complexity, newest first; uses episodes_context.
SELECT e.id FROM episodes e
WHERE e.tenant = %(tenant)s AND e.context_hash = %(context_hash)s AND memory_passes(e, {filter})
ORDER BY e.ended DESC, e.id LIMIT %(k)s

-- name: equal_query_and_context
SELECT e.id FROM episodes e
WHERE e.tenant = %(tenant)s AND e.query_hash = %(query_hash)s
    AND e.context_hash = %(context_hash)s AND memory_passes(e, {filter})
ORDER BY e.ended DESC, e.id LIMIT %(k)s

-- name: equal_keys
-- Equal values of chosen keys of the context, newest first; uses episodes_recent.
SELECT e.id FROM episodes e
WHERE e.tenant = %(tenant)s AND (%(query_hash)s::bigint IS NULL OR e.query_hash = %(query_hash)s)
    AND memory_passes(e, {filter})
    AND coalesce((SELECT jsonb_object_agg(c.key, c.value) FROM jsonb_each(e.context) c
        WHERE c.key = ANY (%(keys)s)), '{}') = %(part)s::jsonb
ORDER BY e.ended DESC, e.id LIMIT %(k)s

-- name: contained
-- Contexts that contain all pairs of the given one, newest first.
SELECT id FROM memory_fuzzy(%(part)s::jsonb, %(k)s, {filter}) ORDER BY rank

-- name: shared_pairs
-- Contexts that share some pairs with the given one, most first, among the newest episodes.
SELECT id, pairs FROM (
    SELECT e.id, e.ended, (SELECT count(*) FROM jsonb_each(%(part)s::jsonb) p
        WHERE e.context -> p.key = p.value) AS pairs
    FROM (
        SELECT e.id, e.ended, e.context FROM episodes e
        WHERE e.tenant = %(tenant)s AND memory_passes(e, {filter})
        ORDER BY e.ended DESC LIMIT %(newest)s
    ) e
) e
WHERE pairs > 0 ORDER BY pairs DESC, ended DESC, id LIMIT %(k)s

-- name: words
-- Queries that have one of the words, best first.
SELECT id FROM memory_words(%(words)s::tsquery, %(k)s, {filter}) ORDER BY rank

-- name: count_vectors
-- How many vectors pass the filters, up to a limit; those of texts without a word count too, so
-- that the primary key is enough.
SELECT count(*) FROM (
    SELECT FROM episode_vectors v {join}
    WHERE v.tenant = %(tenant)s AND v.model = %(model)s {passes}
    LIMIT %(limit)s
) s

-- name: nearest_exact
-- The nearest vectors of all that pass. `+ 0` keeps the planner from the HNSW index.
SELECT v.episode, v.v <=> %(vector)s::halfvec AS distance FROM episode_vectors v {join}
WHERE v.tenant = %(tenant)s AND v.model = %(model)s AND v.v IS NOT NULL {passes}
ORDER BY (v.v <=> %(vector)s::halfvec) + 0, v.episode LIMIT %(k)s

-- name: nearest_hnsw
-- The nearest vectors by the index of the tenant's partition; its order is approximate, so they are
-- sorted again.
SELECT episode, distance FROM (
    SELECT v.episode, v.v <=> %(vector)s::halfvec AS distance FROM episode_vectors v {join}
    WHERE v.tenant = %(tenant)s AND v.model = %(model)s {passes}
    ORDER BY v.v <=> %(vector)s::halfvec LIMIT %(k)s
) s ORDER BY distance, episode

-- name: episodes
-- The found episodes; only live ones that pass the filters. Insights are those of all runs that one
-- stands for, by the number of runs; a thousand of the merged ones at most are read (episodes_insights).
SELECT e.id, e.workflow_type, e.workflow_id, e.user_id, e.agent_id, e.session_id,
    (extract(epoch FROM e.started) * 1000)::bigint, (extract(epoch FROM e.ended) * 1000)::bigint,
    e.outcome, e.reward, e.confidence, e.usefulness, e.duration_ms, e.query, e.context, e.calls,
    e.tools, e.concepts, e.domains, e.agents_used, coalesce(told.insights, e.insights),
    e.response, e.query_hash, e.support,
    coalesce(told.runs, array_fill(1, ARRAY[cardinality(e.insights)])), e.sealed
FROM episodes e LEFT JOIN LATERAL (
    SELECT array_agg(insight ORDER BY runs DESC, insight COLLATE "C") AS insights,
        array_agg(runs ORDER BY runs DESC, insight COLLATE "C") AS runs
    FROM (
        SELECT insight, count(*)::integer AS runs FROM (
            SELECT unnest(e.insights) AS insight
            UNION ALL
            SELECT unnest(m.insights) FROM (
                SELECT m.insights FROM episodes m
                WHERE m.tenant = %(tenant)s AND m.merged_into = e.id AND m.insights <> '{}'
                LIMIT 1000
            ) m
        ) each GROUP BY insight ORDER BY 2 DESC, insight COLLATE "C" LIMIT 20
    ) most
) told ON e.support > 1
WHERE e.tenant = %(tenant)s AND e.id = ANY (%(ids)s) AND memory_passes(e, {filter})

-- name: judged
-- Those of some episodes whose use was judged.
SELECT e.id, e.usefulness FROM episodes e
WHERE e.tenant = %(tenant)s AND e.id = ANY (%(ids)s) AND e.usefulness <> 0

-- name: vectors
-- Vectors of found episodes, in binary: 4 bytes of head, then big-endian 16-bit floats.
SELECT episode, halfvec_send(v) FROM episode_vectors
WHERE tenant = %(tenant)s AND episode = ANY (%(ids)s) AND model = %(model)s AND v IS NOT NULL

-- name: concept_counts
-- Concepts by the number of runs that have them, and the number of runs with any.
SELECT concept, sum(support)::bigint, max(total) FROM (
    SELECT DISTINCT e.id, concept, e.support, e.total
    FROM (
        SELECT e.id, e.concepts, e.support, (sum(e.support) OVER ())::bigint AS total
        FROM episodes e
        WHERE e.tenant = %(tenant)s AND e.concepts <> '{}' AND memory_passes(e, {filter})
    ) e, unnest(e.concepts) AS concept
) s GROUP BY concept ORDER BY 2 DESC, concept LIMIT %(most)s

-- name: concept_pairs
-- Pairs of these concepts by the number of episodes that have both.
SELECT a, b, sum(support)::bigint FROM (
    SELECT DISTINCT e.id, e.support, a, b FROM episodes e, unnest(e.concepts) AS a, unnest(e.concepts) AS b
    WHERE e.tenant = %(tenant)s AND memory_passes(e, {filter})
        AND a COLLATE "C" < b COLLATE "C"
        AND a = ANY (%(concepts_shown)s) AND b = ANY (%(concepts_shown)s)
) s GROUP BY a, b ORDER BY 3 DESC, a, b LIMIT %(most)s

-- name: add_stage
-- One stage of a retrieval.
INSERT INTO memory_retrievals (id, tenant, stage, data)
VALUES (%(id)s, %(tenant)s, %(stage)s, %(data)s)

-- name: stages
-- The stages of a retrieval, in order.
SELECT stage, (extract(epoch FROM at) * 1000)::bigint, data FROM memory_retrievals
WHERE tenant = %(tenant)s AND id = %(id)s ORDER BY at

-- name: apply_judgements
-- What uses of a tenant's episodes were worth as their usefulness; of an episode the last judgement
-- of a retrieval counts, and each writer has one vote, the mean of its retrievals. Readers write these
-- rows: what is malformed is left out.
WITH judgements AS MATERIALIZED (  -- computed once for all episodes of a row
    SELECT id, at,
        CASE WHEN data ->> 'writer' ~ '^[0-9a-f]{32}$' THEN data ->> 'writer' ELSE '' END AS writer,
        CASE WHEN jsonb_typeof(data -> 'accepted') = 'boolean'
        THEN (data ->> 'accepted')::boolean::integer::numeric
        WHEN jsonb_typeof(data -> 'reward') = 'number'
        THEN least(1, greatest(0, (data ->> 'reward')::numeric)) END AS worth,
        CASE jsonb_typeof(data -> 'episodes') WHEN 'array' THEN data -> 'episodes' ELSE '[]' END
            AS episodes
    FROM memory_retrievals WHERE tenant = %(tenant)s AND stage = 'evaluate'
), judged AS (
    SELECT j.id, j.at, j.writer, j.worth,
        CASE WHEN episode ~ '^-?[0-9]{1,19}$'
            AND episode::numeric BETWEEN -9223372036854775808 AND 9223372036854775807
        THEN episode::bigint END AS episode
    FROM judgements j, jsonb_array_elements_text(j.episodes) AS episode
), last AS (
    SELECT DISTINCT ON (id, writer, episode) episode, writer, worth FROM judged
    WHERE episode IS NOT NULL AND worth IS NOT NULL
    ORDER BY id, writer, episode, at DESC
), votes AS (
    SELECT episode, avg(worth) AS vote FROM last GROUP BY episode, writer
), means AS (
    SELECT episode AS id, round(2 * avg(vote) - 1, 9)::real AS usefulness FROM votes GROUP BY episode
)
UPDATE episodes e SET usefulness = means.usefulness FROM means
WHERE e.tenant = %(tenant)s AND e.id = means.id AND e.usefulness <> means.usefulness
