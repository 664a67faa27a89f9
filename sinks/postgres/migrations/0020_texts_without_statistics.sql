-- ANALYZE, which autovacuum runs, copies values of columns into Postgres' own statistics. Texts, and what
-- is made of them, would stay there when their user is erased; so would keys that are destroyed. Plans
-- take the defaults for conditions on these columns.
DO $$
DECLARE here record;
BEGIN
    FOR here IN
        SELECT nspname, relname, attname FROM pg_attribute AS a
        JOIN pg_class AS c ON c.oid = a.attrelid JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE nspname = current_schema() AND relkind IN ('r', 'p') AND (
            relname = 'episodes' AND attname IN (
                'query', 'response', 'words', 'context', 'domains', 'concepts', 'insights',
                'calls', 'trace', 'trace_others', 'sealed', 'quarantine')
            OR relname ~ '^episodic_events(_|$)' AND attname IN ('data', 'extra')
            OR relname ~ '^episode_vectors(_|$)' AND attname = 'v'
            OR relname = 'memory_retrievals' AND attname = 'data'
            OR relname = 'trace_dictionaries' AND attname = 'content'
            OR relname = 'tenant_keys' AND attname = 'wrapped')
    LOOP
        EXECUTE format(
            'ALTER TABLE ONLY %I ALTER %I SET STATISTICS 0', here.relname, here.attname);
        IF current_setting('server_version_num')::integer >= 180000 THEN  -- what there is already
            PERFORM pg_clear_attribute_stats(here.nspname, here.relname, here.attname, inherited)
            FROM (VALUES (false), (true)) AS both_kinds (inherited);
        END IF;
    END LOOP;
    IF current_setting('server_version_num')::integer < 180000 THEN
        BEGIN
            DELETE FROM pg_statistic USING pg_attribute, pg_class
            WHERE starelid = attrelid AND staattnum = attnum AND attstattarget = 0
                AND attrelid = pg_class.oid AND relnamespace = current_schema()::regnamespace;
        EXCEPTION WHEN insufficient_privilege THEN
            NULL;  -- only a superuser may: a purge that vacuums says so while any are left
        END;
    END IF;
END $$;

-- As in 0010, and without statistics of texts, which a partition does not inherit.
CREATE OR REPLACE FUNCTION add_event_partition(day date) RETURNS boolean
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
        'ALTER TABLE %s ALTER data SET STATISTICS 0, ALTER extra SET STATISTICS 0', whole);
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
