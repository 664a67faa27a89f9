-- Backup and restore of all tables.

-- name: snapshot
-- One moment for all statements of the transaction. Rows that row security would hide are an error.
SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL row_security = off;
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0

-- name: tables
-- The tables of the schema that are no partitions, with the columns that are not generated.
SELECT c.relname, array_agg(a.attname::text ORDER BY a.attname)
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'sink_offsets'::regclass)
    AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relname = ANY (%(names)s)
    AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
GROUP BY c.relname ORDER BY c.relname

-- name: days
-- The days that have a partition of events.
SELECT right(c.relname, 8) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid
WHERE inhparent = 'episodic_events'::regclass AND c.relname ~ '^episodic_events_\d{8}$' ORDER BY 1

-- name: identities
-- The identity columns of a table, with their sequences.
SELECT a.attname::text, pg_get_serial_sequence(%(table)s, a.attname) FROM pg_attribute a
WHERE a.attrelid = to_regclass(%(table)s) AND a.attidentity <> '' AND NOT a.attisdropped

-- name: add_day
-- The partition of a day.
SELECT add_event_partition(%(day)s::date)

-- name: restore_settings
-- Of the transaction. Creating partitions has limited the wait for locks to two seconds.
SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '60s', true),
    set_config('maintenance_work_mem', greatest(
        pg_size_bytes('256MB'), pg_size_bytes(current_setting('maintenance_work_mem'))
    ) / 1024 || 'kB', true)

-- name: indexes
-- How to drop and to build each index of a table, those of keys and constraints among them. On a
-- partitioned one, also those of its partitions.
SELECT
    CASE WHEN c.oid IS NULL THEN format('DROP INDEX %%s', i.indexrelid::regclass)
        ELSE format('ALTER TABLE %%s DROP CONSTRAINT %%I', i.indrelid::regclass, c.conname) END,
    CASE WHEN c.oid IS NULL
        THEN regexp_replace(pg_get_indexdef(i.indexrelid), ' ON ONLY ', ' ON ')
        ELSE format('ALTER TABLE %%s ADD CONSTRAINT %%I %%s', i.indrelid::regclass, c.conname,
            pg_get_constraintdef(c.oid)) END
FROM pg_index i
    LEFT JOIN pg_constraint c ON c.conindid = i.indexrelid AND c.contype IN ('p', 'u', 'x')
WHERE i.indrelid = to_regclass(%(table)s) ORDER BY i.indexrelid

-- name: lock_restore
-- One restore at a time.
SELECT pg_advisory_xact_lock(hashtextextended('headstart restore', 0))

-- name: begin_restore
-- Which backup this database was restored from: "topic" is its id, `next_offset` 1 once it is whole,
-- and `epoch` then that of the log which it continues in.
INSERT INTO sink_offsets (consumer, topic, epoch, partition, next_offset)
VALUES ('headstart-restore', %(id)s, %(epoch)s, 0, 0)

-- name: restored
-- 0: the tables are restored; 1: everything is.
SELECT next_offset, epoch FROM sink_offsets
WHERE consumer = 'headstart-restore' AND topic = %(id)s

-- name: finish_restore
-- Everything is restored.
UPDATE sink_offsets SET next_offset = 1, epoch = %(epoch)s
WHERE consumer = 'headstart-restore' AND topic = %(id)s

-- name: later_history
-- Workflow types with steps behind an offset.
SELECT DISTINCT tenant, workflow_type FROM threshold_history
WHERE epoch = %(epoch)s AND "offset" > %(offset)s

-- name: delete_later_history
-- Steps that the saved end of the log gives again.
DELETE FROM threshold_history h USING unnest(%(tenants)s::text[], %(types)s::text[])
    AS given (tenant, workflow_type)
WHERE h.tenant = given.tenant AND h.workflow_type = given.workflow_type
    AND h.epoch = %(epoch)s AND h."offset" > %(offset)s
