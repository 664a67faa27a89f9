-- Notices about contexts: detected with the threshold history, sent afterwards, listed.

-- name: claim
-- The first offset not yet stored of each partition, locked until the transaction ends: a later
-- transaction waits, and then reads what was stored meanwhile. In partition order, as in offsets.sql.
INSERT INTO sink_offsets AS known (consumer, topic, epoch, partition, next_offset)
SELECT %(consumer)s, %(topic)s, %(epoch)s, partition, 0
FROM unnest(%(partitions)s::integer[]) AS given (partition)
ORDER BY partition
ON CONFLICT (consumer, topic, epoch, partition) DO UPDATE SET next_offset = known.next_offset
RETURNING partition, next_offset

-- name: known
-- The newest stored value of each context, and its detectors' state; uses the primary keys.
SELECT asked.tenant, asked.path, newest.epoch, newest."offset", newest.outcomes, kept.state
FROM unnest(%(tenants)s::text[], %(paths)s::text[]) AS asked (tenant, path)
LEFT JOIN LATERAL (
    SELECT epoch, "offset", outcomes FROM threshold_history AS h
    WHERE h.tenant = asked.tenant AND h.path = asked.path
    ORDER BY h.epoch DESC, h."offset" DESC LIMIT 1
) AS newest ON true
LEFT JOIN context_watch AS kept ON kept.tenant = asked.tenant AND kept.path = asked.path

-- name: keep
-- Store the detectors' new state. In key order, so that two writers do not deadlock.
INSERT INTO context_watch AS known (tenant, path, epoch, "offset", state)
SELECT * FROM unnest(
    %(tenants)s::text[], %(paths)s::text[], %(epochs)s::bigint[], %(offsets)s::bigint[],
    %(states)s::bytea[]
) AS given (tenant, path, epoch, "offset", state)
ORDER BY tenant, path
ON CONFLICT (tenant, path) DO UPDATE
SET epoch = excluded.epoch, "offset" = excluded."offset", state = excluded.state

-- name: forget
-- Delete the state of contexts that no longer exist.
DELETE FROM context_watch AS known
USING unnest(%(tenants)s::text[], %(paths)s::text[]) AS gone (tenant, path)
WHERE known.tenant = gone.tenant AND known.path = gone.path

-- name: add
-- Add new notices; one that was detected before is already sent, or waits to be.
INSERT INTO notices (id, kind, tenant, workflow_type, path, at_ms, evidence, partition)
SELECT id, kind, tenant, workflow_type, path, at_ms, evidence::jsonb, partition FROM unnest(
    %(ids)s::text[], %(kinds)s::text[], %(tenants)s::text[], %(workflow_types)s::text[],
    %(paths)s::text[], %(ats)s::bigint[], %(evidences)s::text[], %(partitions)s::integer[]
) AS given (id, kind, tenant, workflow_type, path, at_ms, evidence, partition)
ON CONFLICT (id) DO NOTHING

-- name: unsent
-- The oldest unsent notices of these partitions; uses idx_notices_unsent.
SELECT partition, id, kind, tenant, workflow_type, path, at_ms AS at, evidence
FROM notices
WHERE sent IS NULL AND partition = ANY(%(partitions)s::integer[])
ORDER BY found, id
LIMIT %(limit)s

-- name: mark_sent
-- Mark notices that were written to the topic.
UPDATE notices SET sent = clock_timestamp() WHERE id = ANY(%(ids)s::text[]) AND sent IS NULL

-- name: forget_sent
-- Delete sent notices that are older than the retention; uses idx_notices_found. Workers do not wait for each other.
DELETE FROM notices WHERE id IN (
    SELECT id FROM notices
    WHERE found < clock_timestamp() - %(days)s * interval '1 day' AND sent IS NOT NULL
    ORDER BY found
    LIMIT 5000
    FOR UPDATE SKIP LOCKED
)

-- name: newest
-- The notices, newest first; uses idx_notices_found.
SELECT (extract(epoch FROM found) * 1000)::bigint AS found, id, kind, tenant, workflow_type, path,
    at_ms AS at, evidence
FROM notices
WHERE found >= timestamptz 'epoch' + %(since)s * interval '1 millisecond'
    AND (%(tenant)s::text IS NULL OR tenant = %(tenant)s)
    AND (cardinality(%(kinds)s::text[]) = 0 OR kind = ANY(%(kinds)s::text[]))
ORDER BY notices.found DESC, id DESC
LIMIT %(limit)s
