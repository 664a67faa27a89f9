-- Indexes that cost less, or answer more, than those of the sources (docs/scaling.md, "Indexes").

-- Source 000: how often a tool succeeded. With the time in it, within any time: by (tool, success)
-- every row of the tool in that time had to be looked up in the table.
CREATE INDEX idx_episodic_tool_time ON episodic_events (tool_id, timestamp DESC) INCLUDE (success)
    WHERE tool_id IS NOT NULL;
DROP INDEX idx_episodic_tool_success;

-- Source 001: the newest events of one kind. Nearly all rows are of the two kinds left out here,
-- and of those the primary key, read backwards, soon meets enough.
CREATE INDEX idx_episodic_rare_type_time ON episodic_events (event_type, timestamp DESC)
    WHERE event_type NOT IN ('speculation_start', 'task_complete');
DROP INDEX idx_episodic_type_time;
