"""What reached the broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson

from headstart.emitting.emitter import TOPIC
from topics.kafka.reader import read_records, topic_state

FIELDS: dict[str, Any] = {
    "event_type": "task_complete",
    "workflow_type": "refund",
    "workflow_id": "w1",
}


@dataclass
class Log:
    """What reached the broker since this was made, of one tenant."""

    kafka: str
    tenant: str
    begin: dict[int, int]

    def frames(self) -> list[tuple[bytes, list[dict[str, Any]]]]:
        return asyncio.run(self._read())

    def events(self) -> list[dict[str, Any]]:
        return [event for _key, frame in self.frames() for event in frame]

    async def _read(self) -> list[tuple[bytes, list[dict[str, Any]]]]:
        end = (await topic_state(self.kafka, TOPIC)).end
        mine = self.tenant.encode() + b"\x1f"
        return [
            (record.key, orjson.loads(record.value))
            async for record in read_records(self.kafka, TOPIC, self.begin, end)
            if record.key is not None and record.key.startswith(mine)
        ]
