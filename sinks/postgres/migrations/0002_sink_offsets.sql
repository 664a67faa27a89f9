-- How far each consumer has stored each partition. Written in the transaction that stores the
-- rows, so rows and offset are never apart; `next_offset` is the first offset not yet stored.

CREATE TABLE sink_offsets (
    consumer    text    NOT NULL,
    topic       text    NOT NULL,
    epoch       bigint  NOT NULL,  -- the life of the log in which the offset counts
    partition   integer NOT NULL,
    next_offset bigint  NOT NULL CHECK (next_offset >= 0),
    PRIMARY KEY (consumer, topic, epoch, partition)
);
