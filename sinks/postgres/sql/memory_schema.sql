-- What the memory has only where the database allows it. `headstart migrate` runs it every time;
-- what exists is left as it is.

-- name: has_episodes
-- Whether the migrations that this belongs to were applied.
SELECT to_regclass('episodes') IS NOT NULL AND to_regproc('add_event_partition') IS NOT NULL

-- name: extensions
-- Versions of the installed extensions.
SELECT extname, extversion FROM pg_extension WHERE extname IN ('vector', 'btree_gin')

-- name: create_btree_gin
-- The tenant as the first column of a GIN index.
CREATE EXTENSION IF NOT EXISTS btree_gin

-- name: create_vector
-- pgvector.
CREATE EXTENSION IF NOT EXISTS vector

-- name: has_gin
-- Whether the GIN indexes are there, and whether they have the tenant.
SELECT count(*) FILTER (WHERE indexdef LIKE '%(tenant, %') FROM pg_indexes
WHERE indexname IN ('episodes_fuzzy', 'episodes_words')

-- name: create_tenant_gin
-- Within a tenant: containment of contexts, and words of queries.
DROP INDEX IF EXISTS episodes_fuzzy;
DROP INDEX IF EXISTS episodes_words;
CREATE INDEX episodes_fuzzy ON episodes USING gin (tenant, context jsonb_path_ops);
CREATE INDEX episodes_words ON episodes USING gin (tenant, words)

-- name: create_plain_gin
-- The same over all tenants: correct, and slower for small tenants beside large ones.
CREATE INDEX IF NOT EXISTS episodes_fuzzy ON episodes USING gin (context jsonb_path_ops);
CREATE INDEX IF NOT EXISTS episodes_words ON episodes USING gin (words)

-- name: has_vectors
-- Whether the table of vectors exists.
SELECT to_regclass('episode_vectors') IS NOT NULL

-- name: create_vectors
-- One HNSW graph for a sixteenth of the tenants: small tenants are not lost among large ones, and
-- a query never walks all. `v` is NULL where a text has no vector (no token). PLAIN: not
-- compressed, because vectors do not shrink. HNSW of 12 and 40: half the CPU of 16 and 64 at nearly
-- the same recall (docs/explanation/memory.md). Policies: see migration 0010. Statistics: see 0020.
CREATE TABLE episode_vectors (
    tenant        text        NOT NULL CHECK (tenant <> ''),
    episode       bigint      NOT NULL,
    model         smallint    NOT NULL,
    workflow_type text        NOT NULL,
    outcome       text,
    ended         timestamptz NOT NULL,
    text_hash     bigint      NOT NULL,
    v             halfvec(256),
    PRIMARY KEY (tenant, episode, model)
) PARTITION BY HASH (tenant);
ALTER TABLE episode_vectors ALTER v SET STORAGE PLAIN, ALTER v SET STATISTICS 0;
DO $$ BEGIN
    FOR part IN 0..15 LOOP
        EXECUTE format(
            'CREATE TABLE episode_vectors_%s PARTITION OF episode_vectors '
            'FOR VALUES WITH (MODULUS 16, REMAINDER %s)', part, part);
        EXECUTE format('ALTER TABLE episode_vectors_%s ENABLE ROW LEVEL SECURITY', part);
        EXECUTE format('ALTER TABLE episode_vectors_%s ALTER v SET STATISTICS 0', part);
    END LOOP;
END $$;
CREATE INDEX episode_vectors_type ON episode_vectors (tenant, workflow_type);
CREATE INDEX episode_vectors_hnsw ON episode_vectors USING hnsw (v halfvec_cosine_ops)
    WITH (m = 12, ef_construction = 40);
ALTER TABLE episode_vectors ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON episode_vectors
    USING (tenant = nullif(current_setting('headstart.tenant', true), ''))

-- name: missing_roles
-- Which of the roles do not exist, in this order.
SELECT wanted.name FROM unnest(
    ARRAY['headstart_sink', 'headstart_worker', 'headstart_reader']
) WITH ORDINALITY AS wanted (name, place)
WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted.name)
ORDER BY place

-- name: create_headstart_sink
-- COPY FROM is refused under row-level security, so the sink and the worker go round it.
CREATE ROLE headstart_sink LOGIN NOSUPERUSER BYPASSRLS

-- name: create_headstart_worker
CREATE ROLE headstart_worker LOGIN NOSUPERUSER BYPASSRLS

-- name: create_headstart_reader
CREATE ROLE headstart_reader LOGIN NOSUPERUSER

-- name: granted
-- Whether the last of the grants was made.
SELECT has_function_privilege('headstart_sink', 'add_event_partition(date)', 'EXECUTE')

-- name: vectors_granted
SELECT has_table_privilege('headstart_reader', 'episode_vectors', 'SELECT')

-- name: grant
-- On parents only, never on a partition (but see `grant_upkeep`). `headstart doctor` names what the reader has beyond this:
-- see isolation.sql.
GRANT SELECT, INSERT ON episodic_events, threshold_history TO headstart_sink;
GRANT INSERT ON episode_outbox TO headstart_sink;
GRANT SELECT, INSERT, UPDATE ON sink_offsets TO headstart_sink;
GRANT SELECT, INSERT, UPDATE, DELETE ON notices, context_watch TO headstart_sink;
GRANT SELECT, DELETE ON episodic_events TO headstart_worker;
GRANT SELECT, INSERT, UPDATE, DELETE ON episodes, episode_outbox, memory_models, memory_policies,
    memory_profiles, memory_retrievals TO headstart_worker;
GRANT SELECT, INSERT ON memory_audit TO headstart_worker;  -- it adds to the audit, never changes it
GRANT SELECT ON memory_purges TO headstart_worker;
GRANT SELECT ON episodic_events, threshold_history, notices, episodes, memory_models,
    memory_profiles, memory_policies TO headstart_reader;
GRANT SELECT, INSERT ON memory_retrievals TO headstart_reader;
GRANT EXECUTE ON FUNCTION memory_words, memory_fuzzy TO headstart_reader, headstart_worker;
DO $$ BEGIN
    EXECUTE format('GRANT USAGE ON SCHEMA %I TO headstart_sink, headstart_worker, headstart_reader',
        current_schema());
END $$;
GRANT EXECUTE ON FUNCTION add_event_partition TO headstart_sink

-- name: grant_vectors
GRANT SELECT, INSERT, UPDATE, DELETE ON episode_vectors TO headstart_worker;
GRANT SELECT ON episode_vectors TO headstart_reader

-- name: packing_granted
SELECT coalesce(has_table_privilege(
    'headstart_reader', to_regclass('trace_dictionaries'), 'SELECT'), true)

-- name: grant_packing
GRANT SELECT, INSERT, DELETE ON trace_dictionaries TO headstart_worker;
GRANT USAGE ON SEQUENCE trace_dictionaries_id_seq TO headstart_worker;
GRANT SELECT ON trace_dictionaries TO headstart_reader, headstart_sink;
GRANT EXECUTE ON FUNCTION memory_drop_packed TO headstart_sink

-- name: migrations_granted
SELECT has_table_privilege('headstart_worker', 'schema_migrations', 'SELECT')

-- name: grant_migrations
-- A worker checks at its start that nothing is to be applied.
GRANT SELECT ON schema_migrations TO headstart_sink, headstart_worker

-- name: purges_granted
SELECT has_table_privilege('headstart_sink', 'memory_purges', 'UPDATE')

-- name: grant_purges
-- The sink carries out purges at their place in the log, so it may delete what one covers.
GRANT SELECT, INSERT, UPDATE ON memory_purges TO headstart_sink;
GRANT INSERT ON memory_audit TO headstart_sink;
GRANT SELECT, DELETE ON episodic_events, episodes, episode_outbox, memory_retrievals,
    memory_profiles, memory_policies, threshold_history, notices, context_watch,
    trace_dictionaries TO headstart_sink;
GRANT UPDATE (trace, trace_ids, trace_types, trace_others) ON episodes TO headstart_sink;
GRANT UPDATE (noted) ON episode_outbox TO headstart_sink;  -- SKIP LOCKED needs it
DO $$ BEGIN
    IF to_regclass('episode_vectors') IS NOT NULL THEN
        GRANT SELECT, DELETE ON episode_vectors TO headstart_sink;
    END IF;
END $$

-- name: consolidation_granted
SELECT coalesce(has_table_privilege(
    'headstart_worker', to_regclass('memory_maintenance'), 'UPDATE'), true)

-- name: grant_consolidation
GRANT SELECT, INSERT, UPDATE ON memory_maintenance TO headstart_worker;
GRANT SELECT ON memory_maintenance TO headstart_reader;
GRANT UPDATE (support, usefulness) ON episodes TO headstart_sink;
GRANT EXECUTE ON FUNCTION drop_event_partition TO headstart_worker

-- name: keys_granted
SELECT coalesce(has_table_privilege(
    'headstart_reader', to_regclass('tenant_keys'), 'SELECT'), true)

-- name: grant_keys
-- Wrapped keys: without the master key they open nothing.
GRANT SELECT, INSERT ON tenant_keys TO headstart_sink, headstart_worker;
GRANT SELECT ON tenant_keys TO headstart_reader

-- name: quarantine_granted
SELECT has_table_privilege('headstart_worker', 'notices', 'SELECT')

-- name: grant_quarantine
-- Notices of floods are a reason for it.
GRANT SELECT ON notices TO headstart_worker

-- name: upkeep_granted
-- Since Postgres 17 a role that does not own a table may be allowed to maintain it.
SELECT CASE WHEN current_setting('server_version_num')::integer < 170000 THEN true
    ELSE coalesce(has_table_privilege(
        'headstart_worker', to_regclass('episode_vectors_0'), 'MAINTAIN'), true) END

-- name: grant_upkeep
-- VACUUM and REINDEX, on partitions, which have the indexes; it reads nothing.
DO $$ BEGIN
    IF current_setting('server_version_num')::integer >= 170000
            AND to_regclass('episode_vectors') IS NOT NULL THEN
        FOR part IN 0..15 LOOP
            EXECUTE format('GRANT MAINTAIN ON episode_vectors_%s TO headstart_worker', part);
        END LOOP;
    END IF;
END $$
