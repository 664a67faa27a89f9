-- Encryption at rest: texts of users are sealed with a data key of their tenant, which a master key
-- wraps that is not in the database.

CREATE TABLE tenant_keys (
    tenant   text        NOT NULL CHECK (tenant <> ''),
    number   integer     NOT NULL,           -- in each sealed text
    master   text        NOT NULL,           -- id of the master key that wraps it
    wrapped  bytea,                          -- NULL: shredded
    made     timestamptz NOT NULL DEFAULT now(),
    shredded timestamptz,
    PRIMARY KEY (tenant, number)
);
ALTER TABLE tenant_keys ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON tenant_keys
    USING (tenant = nullif(current_setting('headstart.tenant', true), ''));

-- Query, calls and response, which are NULL then. 4 bytes: number of the data key; 8: a keyed hash of
-- the content, by which an unchanged episode is recognised; then nonce and ciphertext.
ALTER TABLE episodes ADD COLUMN sealed bytea;
ALTER TABLE episodes ALTER sealed SET STORAGE EXTERNAL;  -- it does not shrink

-- Whether an episode has a text and calls, sealed or not.
CREATE FUNCTION memory_has_query(e episodes) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN e.query IS NOT NULL OR e.sealed IS NOT NULL AND e.query_hash IS NOT NULL;
CREATE FUNCTION memory_has_calls(e episodes) RETURNS boolean LANGUAGE sql IMMUTABLE
RETURN e.calls IS NOT NULL OR e.sealed IS NOT NULL AND e.tools <> '{}';

-- The order in which finished runs are learned: a run without a query or calls is skipped when read.
DROP INDEX episodes_learned;
CREATE INDEX episodes_learned ON episodes (tenant, ended, id) WHERE outcome IS NOT NULL;

-- As in migration 0012; calls may be sealed.
CREATE OR REPLACE FUNCTION memory_stays(e episodes, before timestamptz, surprise float8) RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN e.state <> 'live' THEN e.state
    WHEN e.outcome IS NULL THEN 'not finished'
    WHEN e.outcome <> 'success' OR e.reward < 1 THEN 'not a full success'
    WHEN 1 - coalesce(e.predicted, e.confidence, 1) > surprise THEN 'a surprise'
    WHEN e.usefulness <> 0 THEN 'judged by its use'
    WHEN e.query_hash IS NULL OR NOT memory_has_calls(e) THEN 'without a query or a call'
    WHEN coalesce(nullif(e.user_id, ''), nullif(e.agent_id, ''), nullif(e.session_id, '')) IS NULL
        THEN 'of no named writer'
    WHEN e.trace_others IS NOT NULL THEN 'of several users or sessions'
    WHEN e.ended >= before THEN 'too young'
    WHEN e.trace IS NULL OR cardinality(e.trace_ids) <> e.events THEN 'not packed'
END;
