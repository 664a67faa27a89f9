-- Deleted rows that are still in the files.

-- name: dead_rows
-- Tables of events and memory, partitions one by one, with their HNSW index; whether the role may
-- vacuum them, and whether it owns them.
SELECT s.relname::text, s.n_live_tup, s.n_dead_tup, (
    SELECT i.indexrelid::regclass::text FROM pg_index AS i
    JOIN pg_class AS c ON c.oid = i.indexrelid JOIN pg_am AS a ON a.oid = c.relam
    WHERE i.indrelid = s.relid AND a.amname = 'hnsw' AND i.indisvalid
), pg_has_role(t.relowner, 'USAGE')
    OR CASE WHEN current_setting('server_version_num')::integer >= 170000
        THEN has_table_privilege(t.oid, 'MAINTAIN') ELSE false END,
    pg_has_role(t.relowner, 'USAGE')
FROM pg_stat_user_tables AS s JOIN pg_class AS t ON t.oid = s.relid
WHERE s.n_dead_tup > 0 AND s.schemaname = current_schema()
    AND (s.relname ~ '^(episodic_events|episode_vectors)_' OR s.relname IN (
        'episodes', 'episode_outbox', 'memory_retrievals', 'memory_profiles', 'memory_policies',
        'threshold_history', 'notices', 'context_watch', 'trace_dictionaries', 'tenant_keys'))
ORDER BY s.relname

-- name: unfinished_indexes
-- What an interrupted REINDEX CONCURRENTLY has left of a table's indexes.
SELECT c.relname::text FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
JOIN pg_class AS t ON t.oid = i.indrelid
WHERE t.relname = %(table)s AND t.relnamespace = current_schema()::regnamespace
    AND NOT i.indisvalid AND c.relname ~ '_cc(new|old)[0-9]*$'

-- name: analyzed_parents
-- Partitioned tables of some partitions that were analyzed as a whole, which autovacuum never does.
SELECT DISTINCT p.relname::text FROM pg_inherits
JOIN pg_class AS c ON c.oid = inhrelid JOIN pg_class AS p ON p.oid = inhparent
WHERE c.relname = ANY(%(tables)s) AND c.relnamespace = current_schema()::regnamespace
    AND p.relkind = 'p' AND p.reltuples >= 0

-- name: old_statistics
-- Tables with statistics of columns that are to have none.
SELECT DISTINCT s.tablename::text FROM pg_stats AS s
JOIN pg_class AS c ON c.relname = s.tablename AND c.relnamespace = current_schema()::regnamespace
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attname = s.attname
WHERE s.schemaname = current_schema() AND a.attstattarget = 0 ORDER BY 1

-- name: alone
-- For the session. Two that build the same index would wait for each other, and do it twice.
SELECT pg_try_advisory_lock(hashtextextended('headstart index maintenance', 0))

-- name: not_alone
SELECT pg_advisory_unlock(hashtextextended('headstart index maintenance', 0))
