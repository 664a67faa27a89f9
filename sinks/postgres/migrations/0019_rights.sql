-- Rights that have changed since the roles got theirs; without the roles, there is nothing to do.
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'headstart_sink') THEN
        -- A purge passes over rows of the outbox that a worker has locked.
        GRANT UPDATE (noted) ON episode_outbox TO headstart_sink;
    END IF;
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'headstart_worker') THEN
        -- It could have erased the audit, and the marks that keep late events out.
        REVOKE UPDATE, DELETE ON memory_audit FROM headstart_worker;
        REVOKE INSERT, UPDATE, DELETE ON memory_purges FROM headstart_worker;
    END IF;
END $$;
