"""The record in `headstart.decisions` that resets a shared model at its offset."""

from __future__ import annotations

from typing import Final

import orjson

from headstart.keys import event_key
from headstart.partitioner import partition_for_key
from topics.control.messages import SIGNATURE_HEADER, signature
from topics.dead_letters.messages import OutgoingRecord

RESET: Final = "model_reset"
"""The `event_type` of a reset."""


def reset_record(
    tenant: str, workflow_type: str, *, id: str, at_ms: int, partitions: int,
    operators_key: bytes | None,
) -> OutgoingRecord:  # fmt: skip
    """Return the record that resets one model, signed if there is a key. `at_ms`: Unix ms."""
    value = orjson.dumps(
        {
            "id": id,
            "event_type": RESET,
            "tenant": tenant,
            "workflow_type": workflow_type,
            "timestamp": at_ms,
        }
    )
    headers: tuple[tuple[str, bytes], ...] = ()
    if operators_key is not None:
        headers = ((SIGNATURE_HEADER, signature(value, operators_key)),)
    key = event_key(tenant, workflow_type)
    return OutgoingRecord(partition_for_key(key, partitions), key, value, headers)
