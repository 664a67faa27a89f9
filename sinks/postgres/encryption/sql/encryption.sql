-- The data keys of tenants: see migration 0013.

-- name: keys
-- The keys of tenants, oldest first.
SELECT tenant, number, master, wrapped FROM tenant_keys
WHERE tenant = ANY (%(tenants)s::text[]) ORDER BY tenant, number

-- name: add_key
-- Of two writers at once the first one's key stays.
INSERT INTO tenant_keys (tenant, number, master, wrapped)
VALUES (%(tenant)s, %(number)s, %(master)s, %(wrapped)s) ON CONFLICT (tenant, number) DO NOTHING

-- name: listed
-- What there is, without the keys.
SELECT tenant, number, master, (extract(epoch FROM made) * 1000)::bigint,
    (extract(epoch FROM shredded) * 1000)::bigint
FROM tenant_keys WHERE %(tenant)s::text IS NULL OR tenant = %(tenant)s ORDER BY tenant, number

-- name: to_rotate
-- The next keys that another master key has wrapped, locked.
SELECT tenant, number, master, wrapped FROM tenant_keys
WHERE wrapped IS NOT NULL AND master <> %(master)s
ORDER BY tenant, number LIMIT %(limit)s FOR UPDATE

-- name: rotate
UPDATE tenant_keys SET master = %(master)s, wrapped = %(wrapped)s
WHERE tenant = %(tenant)s AND number = %(number)s

-- name: shred
-- The key goes, its number stays: what it sealed is known to be gone, and no key is numbered so again.
UPDATE tenant_keys SET wrapped = NULL, shredded = now()
WHERE tenant = %(tenant)s AND wrapped IS NOT NULL

-- name: clear_sealed
-- Sealed texts of episodes that nothing opens any more.
UPDATE episodes SET sealed = NULL, query_hash = NULL, first_call = NULL
WHERE tenant = %(tenant)s AND ctid = ANY (ARRAY(
    SELECT e.ctid FROM episodes AS e
    JOIN tenant_keys AS k ON k.tenant = e.tenant
        AND k.number = ('x' || encode(substr(e.sealed, 1, 4), 'hex'))::bit(32)::integer
    WHERE e.tenant = %(tenant)s AND e.sealed IS NOT NULL AND k.wrapped IS NULL LIMIT %(limit)s
))
RETURNING id

-- name: forget_vectors
-- Vectors can be compared with those of guessed texts.
DELETE FROM episode_vectors WHERE tenant = %(tenant)s AND episode = ANY (%(ids)s::bigint[])

-- name: forget_retrievals
-- They hold hashes of what was asked.
DELETE FROM memory_retrievals WHERE tenant = %(tenant)s

-- name: rewrite_keys
-- Old versions of rows stay in the file until it is written again.
VACUUM (FULL, ANALYZE) tenant_keys

-- name: audit
INSERT INTO memory_audit (tenant, action, counts) VALUES (%(tenant)s, 'shred', %(counts)s)

-- name: stands
-- By master key: how many keys it wraps, and a tenant of one.
SELECT master, count(*), min(tenant) FROM tenant_keys
WHERE wrapped IS NOT NULL GROUP BY master ORDER BY master

-- name: has_vectors
SELECT to_regclass('episode_vectors') IS NOT NULL
