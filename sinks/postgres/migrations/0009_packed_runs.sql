-- Cold runs: their events are packed into the episode's `trace`, and their rows deleted. What SQL asks
-- of packed events is beside it: their ids, their types, and whom they concern.

-- zstd dictionaries that traces were packed with. A trace names its own; none is ever changed.
CREATE TABLE trace_dictionaries (
    id         integer     GENERATED ALWAYS AS IDENTITY (START 32768) PRIMARY KEY,  -- in each frame
    tenant     text        NOT NULL CHECK (tenant <> ''),
    runs       integer     NOT NULL,         -- that it was trained on
    content    bytea       NOT NULL,
    trained_at timestamptz NOT NULL DEFAULT now()
);
ALTER TABLE trace_dictionaries ALTER content SET STORAGE EXTERNAL;
CREATE INDEX trace_dictionaries_tenant ON trace_dictionaries (tenant, id);
ALTER TABLE trace_dictionaries ENABLE ROW LEVEL SECURITY;
CREATE POLICY tenant ON trace_dictionaries
    USING (tenant = nullif(current_setting('headstart.tenant', true), ''));

ALTER TABLE episodes
    ADD COLUMN trace_ids    uuid[],          -- in the order of the events of `trace`
    ADD COLUMN trace_types  smallint,        -- see memory_event_bits
    -- Users and sessions of packed events other than the episode's own; NULL: none.
    ADD COLUMN trace_others text[],
    ALTER trace SET STORAGE EXTERNAL;        -- it does not shrink any more
COMMENT ON COLUMN episodes.trace IS 'zstd of the packed events: sinks/postgres/packing/trace_format.py';

-- A set of event types as bits.
CREATE FUNCTION memory_event_bits(types text[]) RETURNS smallint LANGUAGE sql IMMUTABLE
RETURN (SELECT coalesce(bit_or(1 << (array_position(ARRAY[
    'speculation_start', 'task_complete', 'ail_decision', 'hil_decision', 'workflow_complete',
    'user_feedback'
], name) - 1)), 0)::smallint FROM unnest(types) AS name);

CREATE OR REPLACE FUNCTION memory_has_event(e episodes, types text[]) RETURNS boolean
LANGUAGE sql STABLE
RETURN coalesce(e.trace_types & memory_event_bits(types), 0) <> 0 OR EXISTS (
    SELECT FROM episodic_events x
    WHERE x.workflow_id = e.workflow_id AND x.timestamp BETWEEN e.started AND e.ended
        AND x.tenant = e.tenant AND x.workflow_type = e.workflow_type AND x.event_type = ANY (types)
);

-- Deletes rows of these runs that are packed already: a record of the log was read again. The sink
-- calls it after it has stored rows that may be so old. As the owner: the sink reads no episodes.
CREATE FUNCTION memory_drop_packed(tenants text[], workflow_ids text[]) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, public, pg_temp AS $$
DECLARE dropped bigint;
BEGIN
    DELETE FROM episodic_events x USING (
        SELECT p.tenant, p.workflow_id, p.started, p.ended, unnest(p.trace_ids) AS id
        FROM unnest(tenants, workflow_ids) AS run (tenant, workflow_id)
        JOIN episodes p ON p.tenant = run.tenant AND p.workflow_id = run.workflow_id
        WHERE p.trace_ids IS NOT NULL
    ) AS packed
    WHERE x.tenant = packed.tenant AND x.id = packed.id AND x.workflow_id = packed.workflow_id
        AND x.timestamp BETWEEN packed.started AND packed.ended;
    GET DIAGNOSTICS dropped = ROW_COUNT;
    RETURN dropped;
END $$;
DO $$ BEGIN
    EXECUTE format('ALTER FUNCTION memory_drop_packed SET search_path = pg_catalog, %I, pg_temp',
        current_schema());
END $$;
REVOKE ALL ON FUNCTION memory_drop_packed FROM PUBLIC;
