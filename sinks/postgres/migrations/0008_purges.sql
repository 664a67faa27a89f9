-- Purges of sessions and workflows too, with the control record that each follows from.

ALTER TABLE memory_purges
    ADD COLUMN session_id  text   NOT NULL DEFAULT '',
    ADD COLUMN workflow_id text   NOT NULL DEFAULT '',
    ADD COLUMN id          text   NOT NULL DEFAULT '',  -- of the newest control record
    ADD COLUMN runs        text[] NOT NULL DEFAULT '{}',  -- whose events without a user are covered
    ADD COLUMN erased_at   timestamptz,  -- up to then all workflow types were erased at once
    ADD COLUMN epoch       bigint,                      -- of the log with these offsets:
    ADD COLUMN offsets     jsonb  NOT NULL DEFAULT '{}',  -- of the record, by partition
    DROP CONSTRAINT memory_purges_pkey,
    ADD PRIMARY KEY (tenant, user_id, session_id, workflow_id);
