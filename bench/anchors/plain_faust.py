"""The anchor of `process`: a plain Faust agent, one table write per event.

The same work on the same records: JSON, one context per workflow type, the EMA rule, RocksDB and
changelog. `python -m bench.anchors.plain_faust BROKER DATADIR`.
"""

from __future__ import annotations

import sys
from typing import Any

import faust

from learners.ema import Ema
from learners.outcome import Outcome

GROUP = "bench-plain-faust"


def build(broker: str, datadir: str) -> Any:
    """Return the app."""
    app = faust.App(
        GROUP,
        broker=f"kafka://{broker}",
        store="rocksdb://",
        datadir=datadir,
        web_enabled=False,
        topic_partitions=8,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
    )
    source = app.topic(
        "headstart.events", value_type=bytes, value_serializer="json", key_type=bytes
    )
    table = app.Table("contexts", partitions=8)
    policy = Ema()

    @app.agent(source)  # type: ignore[untyped-decorator]
    async def learn(stream: Any) -> None:
        async for event in stream:
            key = f"{event['tenant']}/{event['workflow_type']}"
            state = tuple(table.get(key) or policy.initial())
            outcome = Outcome(
                confidence=event["confidence"],
                correct=event["data"]["prediction"]["was_correct"],
                timestamp=event["timestamp"],
            )
            table[key] = policy.update(state, outcome)

    return app


def main() -> None:
    """Run until killed."""
    app = build(sys.argv[1], sys.argv[2])
    faust.Worker(app, loglevel="ERROR", quiet=True).execute_from_commandline()


if __name__ == "__main__":
    main()
