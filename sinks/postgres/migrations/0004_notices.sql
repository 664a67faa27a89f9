-- What is told of contexts, and what it takes to find it. Both are written in the transaction that
-- stores the thresholds they follow from and the offset, so nothing is told twice, and nothing lost.

CREATE TABLE notices (
    id            text        PRIMARY KEY,  -- follows from what changed
    kind          text        NOT NULL,
    tenant        text        NOT NULL,
    workflow_type text        NOT NULL,
    path          text        NOT NULL,     -- empty: the whole workflow type
    at_ms         bigint      NOT NULL,     -- event time, Unix ms
    evidence      jsonb       NOT NULL,
    partition     integer     NOT NULL,     -- of the topic headstart.notices
    found         timestamptz NOT NULL DEFAULT clock_timestamp(),
    sent          timestamptz               -- when the topic had it
);

-- The newest first.
CREATE INDEX idx_notices_found ON notices (found DESC);

-- The outbox: what the topic does not have yet.
CREATE INDEX idx_notices_unsent ON notices (found) WHERE sent IS NULL;

-- What the detectors keep of a context, and the version of the value that it followed from.
CREATE TABLE context_watch (
    tenant   text   NOT NULL,
    path     text   NOT NULL,
    epoch    bigint NOT NULL,
    "offset" bigint NOT NULL,
    state    bytea  NOT NULL,
    PRIMARY KEY (tenant, path)
);
