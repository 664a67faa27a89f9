-- Consolidation and retention: repeated runs count as one episode, and cases beyond the limits go. Of
-- both only the packed events stay, until these are too old as well.

-- 'merged': counted by the episode `merged_into`; 'pruned': beyond the limit of its user. Neither has
-- content or a vector; its packed events give both back when it is assembled again.
ALTER TABLE episodes
    ADD COLUMN merged_into bigint,
    ADD COLUMN support     integer NOT NULL DEFAULT 1,  -- runs that it stands for; 0: none
    DROP CONSTRAINT episodes_state_check,
    ADD CONSTRAINT episodes_state_check
        CHECK (state IN ('live', 'quarantined', 'merged', 'pruned'));
COMMENT ON COLUMN episodes.trace_types IS 'with no trace: the events were packed, and have gone';
CREATE INDEX episodes_merged ON episodes (tenant, merged_into) WHERE merged_into IS NOT NULL;

-- Only live episodes are searched.
DROP INDEX episodes_context;
CREATE INDEX episodes_context ON episodes (tenant, context_hash, ended DESC) WHERE state = 'live';
DROP INDEX episodes_recent;
CREATE INDEX episodes_recent ON episodes (tenant, workflow_type, ended DESC) WHERE state = 'live';

-- Why an episode may not be merged with equal ones; NULL: it may. `before`: younger ones stay;
-- `surprise`: the most that a success may differ from what was predicted.
CREATE FUNCTION memory_stays(e episodes, before timestamptz, surprise float8) RETURNS text
LANGUAGE sql STABLE
RETURN CASE
    WHEN e.state <> 'live' THEN e.state
    WHEN e.outcome IS NULL THEN 'not finished'
    WHEN e.outcome <> 'success' OR e.reward < 1 THEN 'not a full success'
    WHEN 1 - coalesce(e.predicted, e.confidence, 1) > surprise THEN 'a surprise'
    WHEN e.usefulness <> 0 THEN 'judged by its use'
    WHEN e.query_hash IS NULL OR e.calls IS NULL THEN 'without a query or a call'
    WHEN coalesce(nullif(e.user_id, ''), nullif(e.agent_id, ''), nullif(e.session_id, '')) IS NULL
        THEN 'of no named writer'
    WHEN e.trace_others IS NOT NULL THEN 'of several users or sessions'
    WHEN e.ended >= before THEN 'too young'
    WHEN e.trace IS NULL OR cardinality(e.trace_ids) <> e.events THEN 'not packed'
END;

-- When each task of the daily maintenance has ended, and what it did.
CREATE TABLE memory_maintenance (
    task     text        PRIMARY KEY CHECK (task IN ('consolidate', 'prune')),
    finished timestamptz NOT NULL,
    counts   jsonb       NOT NULL DEFAULT '{}',
    horizon  timestamptz                     -- events of before were deleted
);

-- Drops the partition of a day (UTC); false if there is none. As the owner, which the role of the
-- worker need not be. Whatever is asked, the last seven days stay.
CREATE FUNCTION drop_event_partition(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    whole text;
BEGIN
    IF day > (now() AT TIME ZONE 'UTC')::date - 8 THEN
        RAISE EXCEPTION 'the events of % are too young to be dropped', day;
    END IF;
    SELECT c.oid::regclass::text INTO whole FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
    WHERE inhparent = 'episodic_events'::regclass
        AND relname = 'episodic_events_' || to_char(day, 'YYYYMMDD');
    IF whole IS NULL THEN
        RETURN false;
    END IF;
    -- Readers and writers queue behind this wait, so it is limited.
    PERFORM set_config('lock_timeout', '2s', true);
    EXECUTE 'DROP TABLE ' || whole;
    RETURN true;
END $$;

DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION drop_event_partition SET search_path = pg_catalog, %I, pg_temp',
        current_schema());
END $$;

REVOKE ALL ON FUNCTION drop_event_partition FROM PUBLIC;
