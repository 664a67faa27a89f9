-- Profiles of the memory: what a user has set, for all agents (agent_id '') or for one, and how
-- retrieval keeps to it.

ALTER TABLE memory_profiles
    ADD COLUMN window_days integer CHECK (window_days > 0),  -- NULL: cases of any age
    ADD COLUMN changed_at  timestamptz NOT NULL DEFAULT now(),
    ADD CHECK (window_size > 0);
CREATE INDEX memory_profiles_off ON memory_profiles (tenant) WHERE NOT enabled;

ALTER TYPE memory_filter
    ADD ATTRIBUTE own_user    text,        -- who asks: the next two are about this user's cases
    ADD ATTRIBUTE own_agent   text,        -- only those of this agent; '': of none; NULL: of all
    ADD ATTRIBUTE own_since   timestamptz, -- only those that ended then or later
    ADD ATTRIBUTE without_off boolean;     -- no cases of users whose memory is off

-- Whether a user has the memory on. A function of its own: the planner replaces no call of a function
-- with a subquery by its expression, and `memory_passes` would hide that only live episodes pass.
CREATE FUNCTION memory_is_on(of_tenant text, of_user text, of_agent text) RETURNS boolean
LANGUAGE sql STABLE
RETURN NOT EXISTS (
    SELECT FROM memory_profiles p
    WHERE p.tenant = of_tenant AND p.user_id = of_user AND NOT p.enabled
        AND p.agent_id IN ('', coalesce(of_agent, '')));

-- The planner replaces a call by this expression and leaves out what is NULL.
CREATE OR REPLACE FUNCTION memory_passes(e episodes, f memory_filter) RETURNS boolean
LANGUAGE sql STABLE
RETURN e.state = 'live'
    AND ((f).workflow_type IS NULL OR e.workflow_type = (f).workflow_type)
    AND ((f).tool IS NULL OR (f).tool = ANY (e.tools))
    AND ((f).outcome IS NULL OR e.outcome = (f).outcome)
    AND ((f).confidence IS NULL OR e.confidence >= (f).confidence)
    AND ((f).since IS NULL OR e.ended >= (f).since)
    AND ((f).concepts IS NULL OR e.concepts && (f).concepts)
    AND ((f).domains IS NULL OR e.domains && (f).domains)
    AND ((f).event_types IS NULL OR memory_has_event(e, (f).event_types))
    AND ((f).own_user IS NULL OR e.user_id IS DISTINCT FROM (f).own_user
        OR ((f).own_agent IS NULL OR coalesce(e.agent_id, '') = (f).own_agent)
            AND ((f).own_since IS NULL OR e.ended >= (f).own_since))
    AND ((f).without_off IS NULL OR e.user_id IS NULL
        OR memory_is_on(e.tenant, e.user_id, e.agent_id));
