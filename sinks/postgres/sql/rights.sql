-- What the role of a connection may not do, though the workers need it.

-- name: missing
-- The statements that give the rights which are missing, in the order in which they are to be run.
-- Looked up in the catalogues, which every role can read, so that all are found at once. To attach
-- a partition takes the owner of the partitioned table; all else takes privileges.
WITH home AS (
    SELECT coalesce(current_schema()::text, 'public') AS schema
), tables AS (
    SELECT c.oid, c.relname, c.relowner, n.nspname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN home ON schema = nspname
    WHERE relname IN (
        'episodic_events', 'episodic_events_default', 'sink_offsets', 'threshold_history',
        'notices', 'context_watch', 'schema_migrations'
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
    WHERE relname = 'episodic_events' AND NOT pg_has_role(relowner, 'USAGE')
    UNION ALL
    SELECT 4, relname, format(
        'GRANT SELECT, INSERT, UPDATE, DELETE ON %I.%I TO %I', nspname, relname, current_user)
    FROM tables
    WHERE relname <> 'episodic_events' AND NOT (
        has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
        AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE'))
) AS missing
ORDER BY place, name

-- name: stores
-- Whether the role may store episodes: one that only reads needs no other rights.
SELECT coalesce(has_table_privilege(to_regclass('episodic_events'), 'INSERT'), false)
