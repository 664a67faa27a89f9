"""Every topic as data: name, key, partitions, retention and contents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

DAY_MS: Final = 86_400_000


@dataclass(frozen=True)
class Topic:
    """One topic's contract.

    `partitioned`: it has as many partitions as `headstart.events`, else one. `retention_ms` applies
    to topics with cleanup `delete`. A compacted topic keeps the last record of each key and every
    record younger than `compaction_lag_ms`; only closed segments (`segment_ms`) are compacted.
    """

    name: str
    holds: str
    key: str
    partitioned: bool
    cleanup: Literal["delete", "compact"]
    retention_ms: int = -1
    max_record_bytes: int = 1_048_576
    compaction_lag_ms: int = 0
    segment_ms: int = 0
    schema: str | None = None
    internal: bool = False

    def configuration(self) -> dict[str, str]:
        """Return the broker's settings for this topic."""
        settings = {
            "cleanup.policy": self.cleanup,
            "max.message.bytes": str(self.max_record_bytes),
        }
        if self.cleanup == "delete":
            settings["retention.ms"] = str(self.retention_ms)
        if self.compaction_lag_ms:
            settings["min.compaction.lag.ms"] = str(self.compaction_lag_ms)
        if self.segment_ms:
            settings["segment.ms"] = str(self.segment_ms)
        return settings


EVENTS: Final = Topic(
    name="headstart.events",
    holds="frames of episodic events: a JSON array of the events of one key, or one JSON object",
    key="tenant 0x1f workflow_type, placed by murmur2",
    partitioned=True,
    cleanup="delete",
    retention_ms=7 * DAY_MS,
    schema="event",
)
THRESHOLDS: Final = Topic(
    name="headstart.thresholds",
    holds="every change of a context's thresholds: the public contract for other languages",
    key="tenant 0x1f context path",
    partitioned=True,
    cleanup="compact",
    schema="threshold",
)
DEAD_LETTERS: Final = Topic(
    name="headstart.dead-letters",
    holds="what an agent refused: the original bytes; reason, origin and group in the headers",
    key="key of the refused record",
    partitioned=False,
    cleanup="delete",
    retention_ms=30 * DAY_MS,
)
HANDLED: Final = Topic(
    name="headstart.dead-letters-handled",
    holds="which dead letters were replayed or dropped, so that they are not listed any more",
    key="PARTITION:OFFSET@TIMESTAMP of the dead letter",
    partitioned=False,
    cleanup="delete",
    retention_ms=90 * DAY_MS,  # must outlive the dead letters
    internal=True,
)
COMMANDS: Final = Topic(
    name="headstart.commands",
    holds="overrides and modes: what people set about what is served, never about what is learned",
    key="what is set: threshold 0x1f tenant 0x1f workflow type 0x1f path 0x1f tool, "
    "or mode 0x1f tenant 0x1f agent",
    partitioned=False,  # commands are applied in log order
    cleanup="compact",
    schema="command",
)
NOTICES: Final = Topic(
    name="headstart.notices",
    holds="what changed in a context or was overridden: each sent once, or again with the same id",
    key="tenant 0x1f context path",
    partitioned=True,
    cleanup="delete",
    retention_ms=30 * DAY_MS,
    schema="notice",
)
EPOCHS: Final = Topic(
    name="headstart.epochs",
    holds="the log epoch of this broker and the partition count that belongs to it",
    key="the word epoch",
    partitioned=False,
    cleanup="compact",
    internal=True,
)

DECISIONS: Final = Topic(
    name="headstart.decisions",
    holds="frames of what executors' agents decided, as hashes: what shared models learn from",
    key="tenant 0x1f workflow_type, placed by murmur2",
    partitioned=True,
    cleanup="delete",
    retention_ms=7 * DAY_MS,
)
MODELS: Final = Topic(
    name="headstart.models",
    holds="the state of each shared model with its offset, and per partition a marker of them",
    key="tenant 0x1f workflow_type; @partition for the marker",
    partitioned=True,
    cleanup="compact",
    # The owner writes a key again that a stale writer overwrote, well before compaction runs.
    compaction_lag_ms=600_000,
    segment_ms=120_000,
    max_record_bytes=20_971_520,  # states and their marker are one record batch
    internal=True,
)

_GROUP_PREFIX: Final = "headstart-"


def group_of(worker: str) -> str:
    """Return the name of a worker's consumer group."""
    return f"{_GROUP_PREFIX}{worker}"


def worker_of(group: str) -> str:
    """Return the name of the worker whose consumer group this is; another group's name as it is."""
    return group.removeprefix(_GROUP_PREFIX)


THRESHOLDS_GROUP: Final = group_of("thresholds")
EPISODES_GROUP: Final = group_of("episodes")
HISTORY_GROUP: Final = group_of("history")
PREDICTIONS_GROUP: Final = group_of("predictions")
"""Reads `headstart.decisions`."""
SPANS_GROUP: Final = group_of("spans")
"""Reads a topic of another system: an OpenTelemetry Collector's."""
EVENTS_GROUPS: Final = (THRESHOLDS_GROUP, EPISODES_GROUP)
"""The groups whose workers read `headstart.events`."""
CONTEXTS_TABLE: Final = "contexts"

CHANGELOG: Final = Topic(
    name=f"{THRESHOLDS_GROUP}-{CONTEXTS_TABLE}-changelog",
    holds="the threshold agent's rows: contexts, open starts, the partition's applied offset",
    key="row key",
    partitioned=True,
    cleanup="compact",
    # The owner rewrites a key that a stale writer overwrote well before compaction runs.
    compaction_lag_ms=600_000,
    # A restore from nothing reads every uncompacted record. Kafka's default is a week.
    segment_ms=120_000,
    max_record_bytes=20_971_520,  # a checkpoint is one record batch and is never split
    internal=True,
)

TOPICS: Final = (
    EVENTS, THRESHOLDS, DECISIONS, MODELS, DEAD_LETTERS, HANDLED, COMMANDS, NOTICES, EPOCHS,
    CHANGELOG,
)  # fmt: skip

OF_ONE_LOG: Final = tuple(each for each in TOPICS if each.partitioned or each is EPOCHS)
"""Topics that belong to one log epoch and its partition count; the others outlive it."""
