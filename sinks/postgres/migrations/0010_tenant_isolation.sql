-- Row-level security on every table with tenant data: a role that neither owns a table nor has BYPASSRLS
-- sees the rows of one tenant, that of `headstart.tenant`, and without it none. The setting reads as ''
-- after a transaction that had set it, so '' counts as unset.
--
-- A partition has no policy, so it shows nothing to such a role, whatever it was granted: rows are
-- reached through the parent, whose policy then applies.

DO $$
DECLARE name text;
BEGIN
    DROP POLICY IF EXISTS everyone ON episodic_events;
    FOREACH name IN ARRAY ARRAY[
        'episodic_events', 'threshold_history', 'notices', 'context_watch', 'episodes',
        'episode_outbox', 'episode_vectors', 'memory_purges', 'memory_profiles', 'memory_policies',
        'memory_retrievals', 'memory_audit'
    ] LOOP
        CONTINUE WHEN to_regclass(name) IS NULL;  -- vectors, without pgvector
        EXECUTE format('ALTER TABLE %I ENABLE ROW LEVEL SECURITY', name);
        EXECUTE format('DROP POLICY IF EXISTS tenant ON %I', name);
        EXECUTE format(
            'CREATE POLICY tenant ON %I'
            ' USING (tenant = nullif(current_setting(''headstart.tenant'', true), ''''))', name);
    END LOOP;
    FOR name IN
        SELECT c.oid::regclass FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
        WHERE inhparent IN ('episodic_events'::regclass, to_regclass('episode_vectors'))
    LOOP
        EXECUTE 'ALTER TABLE ' || name || ' ENABLE ROW LEVEL SECURITY';
        EXECUTE 'DROP POLICY IF EXISTS tenant ON ' || name;
    END LOOP;
END $$;

-- Creates the partition of a day (UTC) and moves its rows there from the default one; false if it
-- exists. Runs as the owner, so that the sink's role need not own the tables.
CREATE FUNCTION add_event_partition(day date) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE
    name   text := 'episodic_events_' || to_char(day, 'YYYYMMDD');
    begins text := to_char(day, 'YYYY-MM-DD') || ' 00:00:00+00';
    ends   text := to_char(day + 1, 'YYYY-MM-DD') || ' 00:00:00+00';
    whole  text;
BEGIN
    -- One at a time, until the transaction ends.
    PERFORM pg_advisory_xact_lock(hashtextextended('headstart partitions', 0));
    -- Not to_regclass: it may use a cache from before another process created the partition.
    IF EXISTS (SELECT FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
               WHERE inhparent = 'episodic_events'::regclass AND relname = name) THEN
        RETURN false;
    END IF;
    -- Readers and writers queue behind this wait, so it is limited.
    PERFORM set_config('lock_timeout', '2s', true);
    -- No row of this day may be added to the default partition while its rows move.
    LOCK TABLE episodic_events_default IN ACCESS EXCLUSIVE MODE;
    SELECT format('%I.%I', nspname, name) INTO whole
    FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace
    WHERE c.oid = 'episodic_events'::regclass;
    -- A separate table, attached when it is filled: unlike PARTITION OF, this does not block inserts
    -- into other days. Attaching adds the parent's indexes and key.
    EXECUTE format(
        'CREATE TABLE %s (LIKE episodic_events INCLUDING DEFAULTS INCLUDING CONSTRAINTS)', whole);
    EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', whole);
    EXECUTE format(
        'WITH moved AS (DELETE FROM episodic_events_default'
        ' WHERE timestamp >= %L AND timestamp < %L RETURNING *)'
        ' INSERT INTO %s SELECT * FROM moved', begins, ends, whole);
    EXECUTE format(
        'ALTER TABLE episodic_events ATTACH PARTITION %s FOR VALUES FROM (%L) TO (%L)',
        whole, begins, ends);
    RETURN true;
END $$;

DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION add_event_partition SET search_path = pg_catalog, %I, pg_temp',
        current_schema());
END $$;

REVOKE ALL ON FUNCTION add_event_partition FROM PUBLIC;
