-- Separates tenants, and finds what does not.

-- name: one_tenant
-- For this transaction. The role only where it may be taken, and has its rights in this database.
SELECT set_config('headstart.tenant', %(tenant)s, true),
    set_config('row_security', 'on', true),
    set_config('role', CASE WHEN EXISTS (
        SELECT FROM pg_roles r
        JOIN pg_class c ON c.oid = to_regclass('threshold_history')
        WHERE rolname = 'headstart_reader'
            AND has_table_privilege(r.oid, c.oid, 'SELECT')
            AND has_schema_privilege(r.oid, c.relnamespace, 'USAGE')
            AND pg_has_role(session_user, r.oid,
                CASE WHEN current_setting('server_version_num')::integer >= 160000
                    THEN 'SET' ELSE 'MEMBER' END)
    ) THEN 'headstart_reader' ELSE 'none' END, true)

-- name: problems
-- What lets a role see more than one tenant, with the statement that ends it. `tables`: those with
-- tenant data; `readable`, `insertable`: what the reader may do; `definers`: functions that run as the
-- owner.
WITH ours AS (
    SELECT c.oid, c.oid::regclass::text AS name, relrowsecurity, relowner, relacl, false AS is_partition
    FROM unnest(%(tables)s::text[]) AS given (name) JOIN pg_class c ON c.oid = to_regclass(given.name)
), parts AS (
    SELECT c.oid, c.oid::regclass::text AS name, c.relrowsecurity, c.relowner, c.relacl, true AS is_partition
    FROM ours JOIN pg_inherits ON inhparent = ours.oid JOIN pg_class c ON c.oid = inhrelid
), held AS (
    SELECT * FROM ours UNION ALL SELECT * FROM parts
), reader AS (
    SELECT * FROM pg_roles WHERE rolname = 'headstart_reader'
)
SELECT level, what, remedy FROM (
    SELECT 1 AS place, 'error' AS level,
        'any role that may read ' || name || ' sees all tenants: it has no row-level security' AS what,
        'ALTER TABLE ' || name || ' ENABLE ROW LEVEL SECURITY' AS remedy
    FROM held WHERE NOT relrowsecurity
    UNION ALL
    SELECT 2, 'error', 'nothing limits ' || name || ' to one tenant: it lacks the policy "tenant"',
        'CREATE POLICY tenant ON ' || name
        || ' USING (tenant = nullif(current_setting(''headstart.tenant'', true), ''''))'
    FROM ours WHERE NOT EXISTS (
        SELECT FROM pg_policy WHERE polrelid = ours.oid AND polname = 'tenant'
            AND pg_get_expr(polqual, polrelid) LIKE '%%headstart.tenant%%')
    UNION ALL
    SELECT 3, 'error', format('the policy %%s of %%s lets every role see other tenants too', polname, name),
        format('DROP POLICY %%I ON %%s', polname, name)
    FROM held JOIN pg_policy ON polrelid = held.oid
    WHERE polpermissive AND 0 = ANY (polroles) AND (is_partition OR polname <> 'tenant')
    UNION ALL
    SELECT 4, 'error', format('the role %%s goes round row-level security (%%s)', rolname,
            CASE WHEN rolsuper THEN 'SUPERUSER' ELSE 'BYPASSRLS' END),
        format('ALTER ROLE %%I NOSUPERUSER NOBYPASSRLS', rolname)
    FROM reader WHERE rolsuper OR rolbypassrls
    UNION ALL
    SELECT 4, 'error', format('the role %%s is a superuser', rolname),
        format('ALTER ROLE %%I NOSUPERUSER', rolname)
    FROM pg_roles WHERE rolname IN ('headstart_sink', 'headstart_worker') AND rolsuper
    UNION ALL
    SELECT DISTINCT 5, 'error',
        format('the role headstart_reader may act as %%s, which sees all tenants', other.rolname),
        format('REVOKE %%I FROM headstart_reader', other.rolname)
    FROM reader, pg_roles other
    WHERE other.oid <> reader.oid AND NOT reader.rolsuper
        AND (other.rolsuper OR other.rolbypassrls OR other.oid IN (SELECT relowner FROM ours))
        AND pg_has_role(reader.oid, other.oid, 'MEMBER')
    UNION ALL
    SELECT 6, 'error', format('the role headstart_reader may %%s %%s', string_agg(kind, ', ' ORDER BY kind), held.name),
        format('REVOKE %%s ON %%s FROM headstart_reader, PUBLIC', string_agg(kind, ', ' ORDER BY kind), held.name)
    FROM reader, held,
        unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER']) AS kind
    WHERE NOT reader.rolsuper AND has_table_privilege(reader.oid, held.oid, kind)
        AND NOT pg_has_role(reader.oid, held.relowner, 'USAGE')
        AND NOT (kind = 'SELECT' AND held.name = ANY (%(readable)s::text[])
            OR kind = 'INSERT' AND held.name = ANY (%(insertable)s::text[]))
    GROUP BY held.name
    UNION ALL
    SELECT DISTINCT 7, 'error', format('the view %%s shows all tenants: it reads as its owner', v.oid::regclass),
        format('ALTER VIEW %%s SET (security_invoker = true)', v.oid::regclass)
    FROM held JOIN pg_depend d ON d.refobjid = held.oid AND d.refclassid = 'pg_class'::regclass
        AND d.classid = 'pg_rewrite'::regclass
    JOIN pg_rewrite r ON r.oid = d.objid
    JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'v'
    WHERE NOT coalesce(v.reloptions && ARRAY['security_invoker=true', 'security_invoker=on'], false)
    UNION ALL
    SELECT DISTINCT 8, 'error', format('the materialized view %%s has rows of all tenants, and other roles may '
            'read it', v.oid::regclass),
        format('REVOKE ALL ON %%s FROM %%s', v.oid::regclass,
            CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(acl.grantee)) END)
    FROM held JOIN pg_depend d ON d.refobjid = held.oid AND d.refclassid = 'pg_class'::regclass
        AND d.classid = 'pg_rewrite'::regclass
    JOIN pg_rewrite r ON r.oid = d.objid
    JOIN pg_class v ON v.oid = r.ev_class AND v.relkind = 'm',
        aclexplode(v.relacl) AS acl
    WHERE acl.grantee <> v.relowner AND acl.privilege_type = 'SELECT'
    UNION ALL
    SELECT DISTINCT 9, 'error', format('every role may run %%s, which runs as its owner', p.oid::regprocedure),
        format('REVOKE ALL ON FUNCTION %%s FROM PUBLIC', p.oid::regprocedure)
    FROM pg_proc p, aclexplode(coalesce(proacl, acldefault('f', proowner))) AS acl
    WHERE proname = ANY (%(definers)s::text[]) AND prosecdef AND acl.grantee = 0
        AND pronamespace IN (SELECT relnamespace FROM pg_class WHERE oid IN (SELECT oid FROM ours))
    UNION ALL
    SELECT 10, 'warning', 'no role is limited to one tenant: retrieval reads as the owner of the tables',
        'run as a superuser: CREATE ROLE headstart_reader LOGIN NOSUPERUSER; then `headstart migrate`'
    WHERE NOT EXISTS (SELECT FROM reader) AND EXISTS (SELECT FROM ours WHERE name = 'episodes')
    UNION ALL
    SELECT 10, 'warning', format('%%s sees all tenants when it searches the memory: it may not take the '
            'role headstart_reader', session_user),
        format('run as a superuser: GRANT headstart_reader TO %%I', session_user)
    FROM reader JOIN pg_roles own ON own.rolname = session_user
    WHERE NOT pg_has_role(session_user, reader.oid,
            CASE WHEN current_setting('server_version_num')::integer >= 160000
                THEN 'SET' ELSE 'MEMBER' END)
        AND (own.rolbypassrls OR EXISTS (
            SELECT FROM ours WHERE name = 'episodes' AND pg_has_role(session_user, relowner, 'USAGE')))
) AS found
ORDER BY place, what
