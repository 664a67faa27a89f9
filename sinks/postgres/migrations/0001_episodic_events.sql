-- Episodes: what happened, one row per event (source 000, hybrid schema, option C).

CREATE TABLE episodic_events (
    id            uuid        NOT NULL,
    tenant        text        NOT NULL,
    event_type    text        NOT NULL,
    workflow_type text        NOT NULL,
    workflow_id   text        NOT NULL,
    task_id       text,
    user_id       text,
    agent_id      text,
    session_id    text,
    timestamp     timestamptz NOT NULL,
    tool_id       text,
    success       boolean,
    confidence    real,
    data          jsonb       NOT NULL DEFAULT '{}',
    extra         jsonb,      -- unknown top-level fields, so that they survive

    CONSTRAINT valid_event_type CHECK (event_type IN (
        'speculation_start', 'task_complete', 'ail_decision', 'hil_decision',
        'workflow_complete', 'user_feedback'
    )),
    -- The same event has the same timestamp, so this key is unique across partitions; with the
    -- tenant in it, nobody can suppress another tenant's rows by using their ids.
    PRIMARY KEY (timestamp, tenant, id)
) PARTITION BY RANGE (timestamp);

-- Late, early and strange timestamps; sinks/partitions.py moves rows on when their day is made.
CREATE TABLE episodic_events_default PARTITION OF episodic_events DEFAULT;

-- Source 000: the story of one workflow.
CREATE INDEX idx_episodic_workflow_time ON episodic_events (workflow_id, timestamp DESC);

-- Source 000: how often a tool succeeded.
CREATE INDEX idx_episodic_tool_success ON episodic_events (tool_id, success)
    WHERE tool_id IS NOT NULL;

-- Source 000: situations like this one (containment and key existence).
CREATE INDEX idx_episodic_data_context ON episodic_events USING GIN ((data -> 'context'));

-- Source 001: the newest events of one kind.
CREATE INDEX idx_episodic_type_time ON episodic_events (event_type, timestamp DESC);

-- Source 001: events by time. BRIN, not btree: the primary key is a btree that leads with
-- timestamp and, read backwards, answers "newest first"; a second one would only slow the ingest
-- (design §6). Rows arrive nearly in time order, so block ranges serve the wide scans of
-- consolidation and export at a few bytes per megabyte.
CREATE INDEX idx_episodic_timestamp ON episodic_events USING BRIN (timestamp);
