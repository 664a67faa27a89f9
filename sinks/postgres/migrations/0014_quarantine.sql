-- Quarantine: episodes of writers beyond the limits of a window, and of floods of low reward. Only the
-- state decides what is searched, so `memory_passes` stays as it is.

-- Why it is in state 'quarantined'; NULL: it is not, or by hand. See memory/store/sql/quarantine.sql.
ALTER TABLE episodes ADD COLUMN quarantine text;
CREATE INDEX episodes_quarantined ON episodes (tenant, user_id) WHERE state = 'quarantined';
-- Of sessions that name no user.
CREATE INDEX episodes_session ON episodes (tenant, session_id, started)
    WHERE user_id IS NULL AND session_id IS NOT NULL;
-- A release is a row of the audit, which no purge deletes.
CREATE INDEX memory_audit_releases ON memory_audit (tenant, user_id) WHERE action = 'release';
