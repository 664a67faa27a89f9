-- The episodic memory: one row per workflow run, made from its events, and what retrieval needs.
-- What depends on extensions and roles (vectors, GIN indexes, grants) is in sql/memory_schema.sql:
-- `headstart migrate` adds it as soon as the database can have it.

-- 135 B an event, and useless under row-level security: contexts are asked of episodes.
DROP INDEX IF EXISTS idx_episodic_data_context;

CREATE TABLE episodes (
    -- blake2b-64 of tenant, workflow type and workflow id: a rebuild gives the same ids.
    id            bigint      NOT NULL,
    -- '' is what an unset `headstart.tenant` reads as after a local set_config.
    tenant        text        NOT NULL CHECK (tenant <> ''),
    workflow_type text        NOT NULL,
    workflow_id   text        NOT NULL,
    user_id       text,
    agent_id      text,
    session_id    text,
    started       timestamptz NOT NULL,      -- the first and the last event
    ended         timestamptz NOT NULL,
    outcome       text        CHECK (outcome IN ('success', 'failure', 'partial', 'aborted')),
    reward        real        CHECK (reward BETWEEN 0 AND 1),
    confidence    real,
    predicted     real,                      -- for consolidation: the reward that was expected,
    surprise      real,                      -- how far it was missed,
    typicality    real,                      -- and how like its neighbours the run is
    usefulness    real        NOT NULL DEFAULT 0,  -- from accepted and rejected answers
    duration_ms   real,
    cost_ms       real,
    query         text,                      -- the first 8,000 characters
    query_hash    bigint,                    -- of the whole folded query
    context       jsonb       NOT NULL DEFAULT '{}',
    context_hash  bigint      NOT NULL,      -- workflow type, domain, complexity
    first_call    bigint,                    -- hash of the first tool and its arguments
    tools         text[]      NOT NULL DEFAULT '{}',  -- in order
    calls         bytea,                     -- zstd of their JSON: [[tool, arguments, success], ...]
    concepts      text[]      NOT NULL DEFAULT '{}',
    domains       text[]      NOT NULL DEFAULT '{}',
    agents_used   text[]      NOT NULL DEFAULT '{}',
    insights      text[]      NOT NULL DEFAULT '{}',
    reference_ids bigint[]    NOT NULL DEFAULT '{}',  -- the episodes that were retrieved for it
    response      text,                      -- absent if too long to be answered from here
    events        integer     NOT NULL,      -- only grows: the guard against a stale assembly
    trace         bytea,                     -- zstd of the run's events, once their rows have gone
    state         text        NOT NULL DEFAULT 'live'
                              CHECK (state IN ('live', 'quarantined', 'merged')),
    words         tsvector    GENERATED ALWAYS AS
                              (to_tsvector('simple', left(coalesce(query, ''), 8000))) STORED,
    -- The workflow type too: ids need only be unique within it.
    PRIMARY KEY (tenant, workflow_id, workflow_type),
    CONSTRAINT episodes_id UNIQUE (tenant, id)
);
CREATE INDEX episodes_query   ON episodes (tenant, query_hash, ended DESC)
    WHERE query_hash IS NOT NULL;
CREATE INDEX episodes_context ON episodes (tenant, context_hash, ended DESC);
CREATE INDEX episodes_first   ON episodes (tenant, first_call, ended DESC)
    WHERE first_call IS NOT NULL;
CREATE INDEX episodes_recent  ON episodes (tenant, workflow_type, ended DESC);
CREATE INDEX episodes_user    ON episodes (tenant, user_id, agent_id, ended DESC);

-- Runs that the sink has touched, added in its transaction. Append only: without a key the sink
-- never waits for the memory worker. Vacuumed often, because the worker reads it from the start.
CREATE TABLE episode_outbox (
    tenant      text        NOT NULL,
    workflow_id text        NOT NULL,
    first_at    timestamptz NOT NULL,        -- event times
    last_at     timestamptz NOT NULL,
    noted       timestamptz NOT NULL DEFAULT now()
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000);

-- Embedding models. Vectors of two models are never compared. 'filling': vectors are being added;
-- 'active': the one that queries use; 'old': it was active before.
CREATE TABLE memory_models (
    id         smallint    GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text        NOT NULL UNIQUE,
    dimensions integer     NOT NULL,         -- of the stored vectors
    state      text        NOT NULL CHECK (state IN ('filling', 'active', 'old')),
    since      timestamptz NOT NULL DEFAULT now()
);
CREATE UNIQUE INDEX memory_models_active ON memory_models (state) WHERE state = 'active';

-- Erased users (user '': the tenant): events up to `at` make no episode again.
CREATE TABLE memory_purges (
    tenant  text        NOT NULL,
    user_id text        NOT NULL,
    at      timestamptz NOT NULL DEFAULT now(),
    rows    bigint,
    PRIMARY KEY (tenant, user_id)
);

CREATE TABLE memory_profiles (
    tenant      text    NOT NULL,
    user_id     text    NOT NULL,
    agent_id    text    NOT NULL,
    enabled     boolean NOT NULL DEFAULT true,
    window_size integer NOT NULL DEFAULT 200,
    shared      boolean NOT NULL DEFAULT false,
    PRIMARY KEY (tenant, user_id, agent_id)
);

-- Versions of the Q-function. Never changed once they are old.
CREATE TABLE memory_policies (
    tenant       text               NOT NULL,
    version      integer            NOT NULL,
    features     text[]             NOT NULL,
    weights      double precision[] NOT NULL,
    accumulators double precision[] NOT NULL DEFAULT '{}',  -- AdaGrad's, to train on
    examples     bigint             NOT NULL DEFAULT 0,
    trained_to   timestamptz,                -- `ended` of the newest run it has learned from
    metrics      jsonb              NOT NULL,
    trained_at   timestamptz        NOT NULL DEFAULT now(),
    status       text               NOT NULL
                                    CHECK (status IN ('active', 'candidate', 'refused', 'old')),
    PRIMARY KEY (tenant, version)
);
CREATE UNIQUE INDEX memory_policies_active ON memory_policies (tenant) WHERE status = 'active';

-- Retrieve, reuse, evaluate, retain: several rows with one id, added and never changed.
CREATE TABLE memory_retrievals (
    id     uuid        NOT NULL,
    tenant text        NOT NULL,
    at     timestamptz NOT NULL DEFAULT now(),
    stage  text        NOT NULL CHECK (stage IN ('retrieve', 'reuse', 'evaluate', 'retain')),
    data   jsonb       NOT NULL
);
CREATE INDEX memory_retrievals_id ON memory_retrievals (tenant, id);
CREATE INDEX memory_retrievals_at ON memory_retrievals USING brin (at);

CREATE TABLE memory_audit (
    id      bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant  text        NOT NULL,
    user_id text,
    action  text        NOT NULL,
    counts  jsonb       NOT NULL,
    at      timestamptz NOT NULL DEFAULT now()
);

-- Of roles that do not own the tables, each sees the rows of one tenant: that of the setting.
DO $$
DECLARE name text;
BEGIN
    FOREACH name IN ARRAY ARRAY[
        'episodes', 'memory_purges', 'memory_profiles', 'memory_policies', 'memory_retrievals',
        'memory_audit'
    ] LOOP
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I USING (tenant = current_setting(''headstart.tenant'', true))',
            name);
    END LOOP;
END $$;

-- What a request lets through; NULL lets through everything. `event_types`: the run has a stored event
-- of one of these types; `concepts`, `domains`: the episode has one of these.
CREATE TYPE memory_filter AS (
    workflow_type text,
    tool          text,
    outcome       text,
    confidence    real,
    since         timestamptz,
    concepts      text[],
    domains       text[],
    event_types   text[]
);

CREATE FUNCTION memory_has_event(e episodes, types text[]) RETURNS boolean LANGUAGE sql STABLE
RETURN EXISTS (
    SELECT FROM episodic_events x
    WHERE x.workflow_id = e.workflow_id AND x.timestamp BETWEEN e.started AND e.ended
        AND x.tenant = e.tenant AND x.workflow_type = e.workflow_type AND x.event_type = ANY (types)
);

-- The planner replaces a call by this expression and leaves out what is NULL.
CREATE FUNCTION memory_passes(e episodes, f memory_filter) RETURNS boolean LANGUAGE sql STABLE
RETURN e.state = 'live'
    AND ((f).workflow_type IS NULL OR e.workflow_type = (f).workflow_type)
    AND ((f).tool IS NULL OR (f).tool = ANY (e.tools))
    AND ((f).outcome IS NULL OR e.outcome = (f).outcome)
    AND ((f).confidence IS NULL OR e.confidence >= (f).confidence)
    AND ((f).since IS NULL OR e.ended >= (f).since)
    AND ((f).concepts IS NULL OR e.concepts && (f).concepts)
    AND ((f).domains IS NULL OR e.domains && (f).domains)
    AND ((f).event_types IS NULL OR memory_has_event(e, (f).event_types));

-- `@@` and `@>` are not leakproof, so row-level security keeps them out of their indexes. These
-- functions run as the owner and look there, for the tenant of the setting only.
CREATE FUNCTION memory_words(q tsquery, k integer, f memory_filter DEFAULT NULL)
RETURNS TABLE (id bigint, rank bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp BEGIN ATOMIC
    SELECT e.id, row_number() OVER (ORDER BY ts_rank(e.words, q) DESC, e.ended DESC, e.id)
    FROM episodes e
    WHERE e.tenant = current_setting('headstart.tenant') AND e.words @@ q AND memory_passes(e, f)
    ORDER BY 2 LIMIT k;
END;

CREATE FUNCTION memory_fuzzy(part jsonb, k integer, f memory_filter DEFAULT NULL)
RETURNS TABLE (id bigint, rank bigint)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp BEGIN ATOMIC
    SELECT e.id, row_number() OVER (ORDER BY e.ended DESC, e.id) FROM episodes e
    WHERE e.tenant = current_setting('headstart.tenant') AND e.context @> part
        AND memory_passes(e, f)
    ORDER BY 2 LIMIT k;
END;

REVOKE ALL ON FUNCTION memory_words, memory_fuzzy FROM PUBLIC;
