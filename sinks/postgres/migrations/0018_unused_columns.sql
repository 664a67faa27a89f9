-- A success is a surprise where its guesses had little confidence: `confidence` says that. The columns
-- meant for it were never written.

-- As in migration 0013.
CREATE OR REPLACE FUNCTION memory_stays(e episodes, before timestamptz, surprise float8) RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN e.state <> 'live' THEN e.state
    WHEN e.outcome IS NULL THEN 'not finished'
    WHEN e.outcome <> 'success' OR e.reward < 1 THEN 'not a full success'
    WHEN 1 - coalesce(e.confidence, 1) > surprise THEN 'a surprise'
    WHEN e.usefulness <> 0 THEN 'judged by its use'
    WHEN e.query_hash IS NULL OR NOT memory_has_calls(e) THEN 'without a query or a call'
    WHEN coalesce(nullif(e.user_id, ''), nullif(e.agent_id, ''), nullif(e.session_id, '')) IS NULL
        THEN 'of no named writer'
    WHEN e.trace_others IS NOT NULL THEN 'of several users or sessions'
    WHEN e.ended >= before THEN 'too young'
    WHEN e.trace IS NULL OR cardinality(e.trace_ids) <> e.events THEN 'not packed'
END;

ALTER TABLE episodes DROP COLUMN predicted, DROP COLUMN surprise, DROP COLUMN typicality;
