"""Publishes each partition's evidence as control records, and the tenants' defaults.

The owner of partition 0 merges the evidence into defaults, so the consumer group elects the merger;
a successor continues from the table. What the broker does not take is sent at the next check.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog
from aiokafka.errors import KafkaError

from agents.thresholds.partition import OwnedPartition

log = structlog.get_logger()

MERGING: Final[Sequence[int]] = (0,)
"""The partition whose owner merges."""


async def broadcast_evidence_and_defaults(
    owned: OwnedPartition, partitions: int, now_ms: int
) -> None:
    """Send what changed of a partition's evidence and, if it merges, of defaults, into all."""
    send = owned.targets.send_control
    try:
        for evidence in owned.evidence.due(now_ms):
            if not await send(evidence, MERGING):
                return
            owned.evidence.sent(evidence)
        if owned.merger is None:
            return
        for default in owned.merger.due(now_ms):
            if not await send(default, range(partitions)):
                return
            owned.merger.sent(default)
            outcomes = default.learned.outcomes if default.learned else 0
            log.info("defaults.published", tenant=default.tenant, outcomes=outcomes)
    except (KafkaError, OSError) as error:
        log.warning("defaults.retrying", partition=owned.partition, error=str(error))
