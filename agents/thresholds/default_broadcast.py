"""Says what a partition knows, as control records: evidence of workflow types, and defaults.

Who owns the first partition merges, so the group decides who that is, and a successor goes on with
what the table holds. A broker that does not answer is asked again at the next look.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from aiokafka.errors import KafkaError

from agents.thresholds.partition import OwnedPartition
from agents.thresholds.services import PartitionServices
from topics.control.messages import Control, control_records

log = structlog.get_logger()

MERGING: Sequence[int] = (0,)
"""The partition whose owner merges."""


async def broadcast_evidence_and_defaults(
    owned: OwnedPartition, services: PartitionServices
) -> None:
    """Send what has moved of an owned partition's evidence, and of the defaults if it merges."""
    now_ms = services.env.clock.now_ms()
    try:
        for evidence in owned.evidence.due(now_ms):
            if not await _send(owned, services, evidence, MERGING):
                return
            owned.evidence.sent(evidence)
        if owned.merger is None:
            return
        for default in owned.merger.due(now_ms):
            if not await _send(owned, services, default, range(services.epoch.partitions)):
                return
            owned.merger.sent(default)
            outcomes = default.learned.outcomes if default.learned else 0
            log.info("thresholds.default", tenant=default.tenant, outcomes=outcomes)
    except (KafkaError, OSError) as error:
        log.warning("thresholds.default.waits", partition=owned.partition, error=str(error))


async def _send(
    owned: OwnedPartition, services: PartitionServices, control: Control, partitions: Sequence[int]
) -> bool:
    """Send a control record into partitions; return whether this process may still say such."""
    if not owned.targets.current():
        return False
    await services.producer.send_controls(
        control_records(control, partitions, services.rules.operators_key)
    )
    return True
