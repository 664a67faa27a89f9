-- Runs that name neither user nor session share one write limit of their tenant: those of one window are
-- found by this index.

CREATE INDEX episodes_unnamed ON episodes (tenant, started)
    WHERE user_id IS NULL AND session_id IS NULL;
