-- The progress of a consumer.

-- name: next_offsets
-- The first offset not yet stored, by partition.
SELECT partition, next_offset FROM sink_offsets
WHERE consumer = %(consumer)s AND topic = %(topic)s AND epoch = %(epoch)s

-- name: advance
-- Never backwards: a late writer repeats rows that are stored already. In partition order, so
-- that two writers wait for each other and do not deadlock. Returns what was stored before: less
-- than the writer knows of, if a replica took over that lacks the last transactions.
WITH before AS (
    SELECT partition, next_offset FROM sink_offsets
    WHERE consumer = %(consumer)s AND topic = %(topic)s AND epoch = %(epoch)s
        AND partition = ANY(%(partitions)s::integer[])
), advanced AS (
    INSERT INTO sink_offsets AS known (consumer, topic, epoch, partition, next_offset)
    SELECT %(consumer)s, %(topic)s, %(epoch)s, given.partition, given.next_offset
    FROM unnest(%(partitions)s::integer[], %(next_offsets)s::bigint[])
        AS given (partition, next_offset)
    ORDER BY given.partition
    ON CONFLICT (consumer, topic, epoch, partition)
    DO UPDATE SET next_offset = greatest(known.next_offset, excluded.next_offset)
)
SELECT partition, next_offset FROM before

-- name: has_offsets
-- Whether the database has been migrated far enough to hold offsets.
SELECT to_regclass('sink_offsets') IS NOT NULL

-- name: largest_epoch
-- The newest epoch of a log from which rows were stored; NULL before the first.
SELECT max(epoch) FROM sink_offsets

-- name: lock_recreation
-- One recreation of the log at a time, until the connection ends.
SELECT pg_try_advisory_lock(hashtextextended('headstart topics recreate', 0))
