-- Locks between a purge and what stores or packs a tenant's rows.

-- name: lock_tenants
-- Writers of a tenant's events and episodes share its lock; a purge has it alone, so that what one
-- of them stores is either there to be deleted, or stored by a writer that knows of the purge. In
-- order, so that transactions cannot deadlock.
SELECT CASE WHEN alone THEN pg_advisory_xact_lock(key) ELSE pg_advisory_xact_lock_shared(key) END
FROM (
    SELECT hashtextextended('headstart memory ' || tenant, 0) AS key, bool_or(alone) AS alone
    FROM unnest(%(tenants)s::text[], %(alone)s::boolean[]) AS given (tenant, alone)
    GROUP BY key ORDER BY key
) AS keys
