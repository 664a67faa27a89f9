"""Puts the world's models where the agents reach for the real thing, for as long as runs last."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from operator import ne
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import agents.consumer.partition_queue
import agents.consumer.sequencer
import agents.consumer.stall_refetch
import agents.storage.agent
import agents.thresholds.agent
import agents.thresholds.checkpoint_buffer
import agents.thresholds.checkpoint_writer
import agents.thresholds.clock_records
import agents.thresholds.default_broadcast
import agents.thresholds.epoch_migration
import agents.thresholds.partition
import agents.thresholds.rebuild
import agents.thresholds.recovery
import agents.thresholds.redis_publishing
import agents.thresholds.redis_repair
import agents.thresholds.services
import agents.thresholds.sound_clock
import processing.control.default_merging
import processing.state.tombstones
from processing.contexts.thresholds import threshold_from_row
from tests.simulation import clients, databases, tampering
from tests.simulation.host_clocks import worker_ms
from tests.simulation.loop import OWNER
from tests.simulation.process import end_process

REDIS_INTERVAL_S = 14.0
TIDY_INTERVAL_S = 30.0
SWEEP_S = 20.0
WITNESS_S = 18.0
"""How often workers look whether to say what time it is; 10 s in earnest."""
BURY_AFTER_S = 200.0
"""Longer than anything sent can be under way; 1,800 s in earnest, 300 s of starts."""
BURIED = ("BURY_AFTER_S", "BURY_STARTS_AFTER_S")

REWRITE_AFTER = 40
"""Records of the changelog after which the table is rewritten; 20,000 in earnest."""

TAKEN_AT_ONCE = 400
"""Bytes of the rows of one commit of a rebuild: several make a table; 2 MB in earnest."""

GATHERED_S = 6.0
"""How long a commit takes in more: as long as several messages are under way; .25 s in earnest."""

COMPARED_AT_ONCE = 4
"""Contexts that are compared with Redis in one step; 100 in earnest."""

answered = lru_cache(maxsize=4096)(threshold_from_row)
"""What a row answers, worked out once: it depends on the row alone, and is asked at each opening,
which in a world is every other moment."""


class _Log:
    """Takes what the agents log into the world's trace."""

    def bind(self, **_more: Any) -> _Log:
        return self

    def _say(self, event: str, **more: Any) -> None:
        process = OWNER.get()
        if process is not None and process.world.trace is not None:
            said = {name: value for name, value in more.items() if name != "exc_info"}
            process.world.note(f"{process.name} says {event} {said}")

    info = warning = error = _say


def _now() -> float:
    process = OWNER.get()
    return 0.0 if process is None else process.world.loop.now


def _now_ms() -> int:
    process = OWNER.get()
    return 0 if process is None else process.world.wall_ms()


def _worker_ms() -> int:
    """Return what time it is by the worker's own clock."""
    process = OWNER.get()
    return 0 if process is None else worker_ms(process.world, process.name)


def _new_id(_now_ms: int) -> str:
    process = OWNER.get()
    assert process is not None
    return str(uuid.UUID(int=process.world.chance.getrandbits(128), version=4))


@contextmanager
def simulated() -> Iterator[None]:
    """Let agents run in worlds. The address that a client is given is its worker."""
    models: list[tuple[Any, dict[str, Any]]] = [
        (agents.thresholds.agent, {
            "BatchProducer": clients.Producer, "StallGuard": clients.Alive,
            "PublishMarkers": databases.Published,
            "topic_state": clients.topic_state, "exit_fatally": end_process, "log": _Log(),
            "REDIS_INTERVAL_S": REDIS_INTERVAL_S, "TIDY_INTERVAL_S": TIDY_INTERVAL_S,
            "LOOK_S": WITNESS_S,
        }),
        (agents.thresholds.redis_repair, {
            "RedisComparison": tampering.Comparison, "topic_state": clients.topic_state,
            "read_epoch": clients.read_epoch, "log": _Log(), "threshold_from_row": answered,
            "time": SimpleNamespace(monotonic=_now, time_ns=lambda: _now_ms() * 1_000_000),
            "AT_ONCE": COMPARED_AT_ONCE,
        }),
        (agents.thresholds.redis_publishing, {
            "ThresholdPublisher": databases.Publisher, "exit_fatally": end_process, "log": _Log(),
        }),
        (agents.thresholds.partition, {
            "read_records": clients.read_records, "time": SimpleNamespace(monotonic=_now),
            "threshold_from_row": answered, "REWRITE_AFTER": REWRITE_AFTER, "REWRITE_FACTOR": 0,
        }),
        (agents.thresholds.recovery, {
            "read_batches": clients.recover_batches, "read_records": clients.read_records,
            "topic_state": clients.topic_state, "log": _Log(),
        }),
        (agents.storage.agent, {
            "BatchProducer": clients.Producer, "exit_fatally": end_process, "log": _Log(),
        }),
        (agents.thresholds.checkpoint_buffer, {"LONGEST_S": GATHERED_S, "MORE_S": GATHERED_S}),
        (agents.consumer.partition_queue, {"exit_fatally": end_process, "log": _Log()}),
        (agents.consumer.stall_refetch, {"log": _Log(), "SWEEP_S": SWEEP_S}),
        (agents.thresholds.epoch_migration, {"log": _Log()}),
        (agents.thresholds.rebuild, {
            "read_batches": clients.read_events, "log": _Log(), "COMMIT_BYTES": TAKEN_AT_ONCE,
        }),
        (agents.thresholds.default_broadcast, {
            "log": _Log(), "time": SimpleNamespace(time_ns=lambda: _now_ms() * 1_000_000),
        }),
        (agents.thresholds.sound_clock, {"log": _Log(), "running_s": _now}),
        (agents.thresholds.clock_records, {
            "log": _Log(), "new_id": _new_id,
            "time": SimpleNamespace(time_ns=lambda: _worker_ms() * 1_000_000),
        }),
        (agents.thresholds.services, {"threshold_from_row": answered}),
        (processing.control.default_merging, {
            "new_id": _new_id, "MIN_OUTCOMES": 1, "RESEND_AFTER_S": 0.0, "_evidence_moved": ne,
            "_default_moved": ne,
        }),
        (agents.thresholds.checkpoint_writer, {"log": _Log()}),
        (agents.consumer.sequencer, {"log": _Log()}),
        (processing.state.tombstones, dict.fromkeys(BURIED, BURY_AFTER_S)),
    ]  # fmt: skip
    with ExitStack() as stack:
        for module, names in models:
            stack.enter_context(patch.multiple(module, **names))
        yield
