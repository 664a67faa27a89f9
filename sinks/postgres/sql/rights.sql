-- Privileges that workers need and the role of a connection lacks.

-- name: missing
-- The statements that grant the missing rights, in the order in which to run them. Found in the
-- catalogues, which every role can read, so that all are found at once. Attaching a partition
-- requires the owner of the partitioned table; where row-level security is on, the owner or a role
-- with BYPASSRLS; everything else requires privileges. The roles of one worker each have their own
-- grants (memory_schema.sql).
WITH home AS (
    SELECT coalesce(current_schema()::text, 'public') AS schema
), tables AS (
    SELECT c.oid, c.relname, c.relowner, n.nspname,
        relname = 'episodic_events' OR relrowsecurity
            AND NOT (SELECT rolbypassrls FROM pg_roles WHERE rolname = current_user) AS needs_owner
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN home ON schema = nspname
    WHERE relname IN (
        'episodic_events', 'episodic_events_default', 'sink_offsets', 'threshold_history',
        'notices', 'context_watch', 'schema_migrations', 'episodes', 'episode_vectors',
        'episode_outbox', 'memory_models', 'memory_purges', 'memory_profiles', 'memory_policies',
        'memory_retrievals', 'memory_audit', 'trace_dictionaries', 'tenant_keys'
    )
)
SELECT statement FROM (
    SELECT 1 AS place, '' AS name,
        format('GRANT USAGE, CREATE ON SCHEMA %I TO %I', schema, current_user) AS statement
    FROM home JOIN pg_namespace ON nspname = schema
    WHERE NOT has_schema_privilege(pg_namespace.oid, 'USAGE')
        OR NOT has_schema_privilege(pg_namespace.oid, 'CREATE')
    UNION ALL
    SELECT 2, '', format('GRANT TEMPORARY ON DATABASE %I TO %I', current_database(), current_user)
    WHERE NOT has_database_privilege(current_database(), 'TEMPORARY')
    UNION ALL
    SELECT 3, relname, format('ALTER TABLE %I.%I OWNER TO %I', nspname, relname, current_user)
    FROM tables
    WHERE needs_owner AND NOT pg_has_role(relowner, 'USAGE')
    UNION ALL
    SELECT 4, relname, format(
        'GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO %I', nspname, relname, current_user)
    FROM tables
    WHERE NOT needs_owner AND NOT (
        has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
        AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))
    UNION ALL
    SELECT 5, '', format('ALTER FUNCTION %I.%I OWNER TO %I', schema, proname, current_user)
    FROM home JOIN pg_namespace n ON n.nspname = schema JOIN pg_proc ON pronamespace = n.oid
    WHERE proname = 'add_event_partition' AND NOT pg_has_role(proowner, 'USAGE')
) AS missing
WHERE current_user NOT IN ('headstart_sink', 'headstart_worker')
ORDER BY place, name

-- name: stores
-- Whether the role may store episodes: a read-only role needs no other rights.
SELECT coalesce(has_table_privilege(to_regclass('episodic_events'), 'INSERT'), false)
