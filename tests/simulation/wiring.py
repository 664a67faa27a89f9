"""What a world gives to the agents in the place of clocks, services and the process's end."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from agents.environment import Clocks, Environment, Tuning
from agents.thresholds.clients import Clients
from processing.control.default_merging import ReportTuning
from tests.simulation import clients, databases, tampering
from tests.simulation.host_clocks import worker_ms
from tests.simulation.loop import OWNER
from tests.simulation.process import end_process
from topics.catalogue import CHANGELOG

if TYPE_CHECKING:
    from tests.simulation.worker import Worker

REFETCH_S = 20.0
DELETE_AFTER_S = 200.0
"""Longer than anything sent can be under way."""
OFFSETS_S = 15.0
CHECKPOINT_S = 6.0
"""As long as several messages are under way."""

TUNING = Tuning(
    redis_interval_s=14.0,
    tidy_interval_s=30.0,
    clock_interval_s=18.0,
    checkpoint_s=CHECKPOINT_S,
    idle_s=CHECKPOINT_S,
    check_offsets_s=0.0,
    rewrite_after=40,
    rewrite_factor=0,
    rebuild_checkpoint_bytes=400,  # several make a table
    compared_rows=4,
    delete_after_s=DELETE_AFTER_S,
    delete_starts_after_s=DELETE_AFTER_S,
    reports=ReportTuning(min_outcomes=1, again_s=0.0, every_change=True),
)


def environment(worker: Worker) -> Environment:
    """Return the environment of a worker, by its world's clock and its own."""
    world = worker.world

    def new_id(_now_ms: int) -> str:
        return str(uuid.UUID(int=world.chance.getrandbits(128), version=4))

    now_s = world.loop.time
    clock = Clocks(lambda: worker_ms(world, worker.name), now_s, now_s, new_id)
    tuning = replace(TUNING, check_offsets_s=OFFSETS_S if world.schedule.failing_over else 0.0)
    return Environment(clock, end_process, clients.Alive, tuning)  # type: ignore[arg-type]


async def _read_batches(
    worker: Worker, topic: str, begin: Mapping[int, int], end: Mapping[int, int]
) -> AsyncIterator[Any]:
    read = clients.recover_batches if topic == CHANGELOG.name else clients.read_events
    async for batch in read(worker, topic, begin, end):
        yield batch


MODELS: Any = {
    "producer": clients.Producer,
    "publisher": databases.Publisher,
    "publish_markers": databases.Published,
    "last_owners": databases.Owners,
    "comparison": tampering.Comparison,
    "read_epoch": clients.read_epoch,
    "topic_state": clients.topic_state,
    "read_batches": _read_batches,
    "read_records": clients.read_records,
}
CLIENTS = Clients(**MODELS)
"""Their address is the worker."""


def _trace(_logger: object, _method: str, event: dict[str, Any]) -> dict[str, Any]:
    process = OWNER.get()
    if process is not None and process.world.trace is not None:
        name, more = event.pop("event"), event
        more.pop("exc_info", None)
        process.world.note(f"{process.name} logs {name} {more}")
    raise structlog.DropEvent


@contextmanager
def simulated() -> Iterator[None]:
    """Write what agents log into their worlds' traces, for as long as runs last."""
    before = structlog.get_config()
    structlog.configure(processors=[_trace])
    try:
        yield
    finally:
        structlog.configure(**before)
