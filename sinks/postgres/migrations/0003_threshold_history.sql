-- Every change of a context's thresholds. (epoch, "offset") is the version, so a record that is
-- delivered twice is one row.

CREATE TABLE threshold_history (
    tenant        text             NOT NULL,
    workflow_type text             NOT NULL,
    path          text             NOT NULL,
    epoch         bigint           NOT NULL,
    "offset"      bigint           NOT NULL,
    speculate     double precision NOT NULL,
    suggest       double precision NOT NULL,
    outcomes      bigint           NOT NULL,
    learner       text             NOT NULL,
    at            timestamptz      NOT NULL,  -- event time of the newest outcome
    PRIMARY KEY (tenant, path, epoch, "offset")
);

-- The history of one context over time.
CREATE INDEX idx_threshold_history_time ON threshold_history (tenant, path, at);
