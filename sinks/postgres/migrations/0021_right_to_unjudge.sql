-- The sink carries out purges, which delete judgements: what they judged has usefulness 0 until the
-- memory worker has judged it again. Without the roles there is nothing to do.
DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_roles WHERE rolname = 'headstart_sink') THEN
        GRANT UPDATE (usefulness) ON episodes TO headstart_sink;
    END IF;
END $$;
