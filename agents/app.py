"""Builds the Faust app of each worker: batch-wise fetching, and settings that keep exactness.

An app owns one `PartitionAgent`; it opens partitions with it and feeds it batches.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

import faust
import structlog
from aiokafka.errors import IllegalStateError
from faust.tables.manager import TableManager
from faust.types import TP

from agents.config import CannotOpenYet, PartitionAgent, WorkerConfig
from agents.consumer.epoch_assignor import EpochAssignor
from agents.consumer.faust_credentials import broker_credentials
from agents.consumer.faust_transport import FETCH_WAIT_MS, RecordBatchSchema, Transport
from agents.consumer.fetch_loop import PrefetchScan
from agents.consumer.fetch_to_batch import MAX_BYTES
from agents.consumer.stall_refetch import refetch_stalled_partitions
from agents.fatal import exit_fatally
from agents.health.log_epoch_watch import LogWatch
from agents.health.reporter import HealthReporter
from agents.health.stall_guard import HEARTBEAT_S, SESSION_TIMEOUT_S
from agents.instance_name import Membership
from agents.retry_delays import AT_START_S, AT_WORK_S, delay_s
from sinks.connections import POSTGRES_LOST
from topics.kafka.asking_again import passes

log = structlog.get_logger()

SHUTDOWN_TIMEOUT_S: Final = 9.0
"""What is not done by then, because a service is away, is done again by the next owner."""


class Tables(TableManager):  # type: ignore[misc]
    """Faust's tables, all registered before the app starts."""

    async def on_start(self) -> None:
        """Start at once: Faust waits a second for modules that may still register tables."""
        await self._update_channels()
        await self.recovery.start()


class App(faust.App):  # type: ignore[misc]
    """A Faust app that fetches batch-wise."""

    source_topics: frozenset[str] = frozenset()
    membership: Membership | None = None
    """How it appears in its group; None: it is in none."""
    used_partitions: int | None = None
    """The partitions of the log epoch, the first of each topic; None: of another system's topic."""
    gather_bytes, gather_ms = 1, FETCH_WAIT_MS
    """The bytes that the broker waits for before it answers a fetch, and for how long."""
    partition_bytes = MAX_BYTES
    """Of one partition in a fetch, at most."""
    runtime: PartitionAgent
    prefetch_scan: PrefetchScan | None = None
    health: HealthReporter | None = None
    log_watch: LogWatch | None = None
    """Set where the log is lost with its broker's process."""
    ready = False
    """Partitions are assigned, and their rows restored."""
    opened = 0
    """Partitions opened under this assignment, and other progress of the start."""

    async def on_start(self) -> None:
        """Report health from the first second on, also while tables are restored."""
        await super().on_start()
        if self.health is not None:
            await self.add_async_context(self.health.running())
        if self.log_watch is not None:
            await self.log_watch.begin()
            self.add_future(self.log_watch.keep())

    async def crash(self, reason: BaseException) -> None:
        """End the process: Faust would stop its services, which may never end."""
        exit_fatally("app", reason)

    async def stop(self) -> None:
        """Finish what is in flight and commit it; end after `SHUTDOWN_TIMEOUT_S` in any case."""
        timer = threading.Timer(SHUTDOWN_TIMEOUT_S, _exit_on_timeout)
        timer.daemon = True
        timer.start()
        await super().stop()

    def _new_transport(self) -> Transport:
        return Transport(self.conf.broker_consumer, self)

    async def positions(self, assigned: set[TP], committed: Mapping[TP, int]) -> Mapping[TP, int]:
        """Return where to begin in each assigned partition."""
        return await self.runtime.positions(assigned, committed)

    def progress(self) -> dict[int, int]:
        """Return the offset below which everything took effect, by partition."""
        if not self.ready:
            return {}
        return {tp.partition: offset for tp, offset in self.consumer.reached().items()}

    def restored(self) -> dict[int, int]:
        """Return the changelog offset that the table has reached while it is restored."""
        if self.ready:
            return {}
        return {
            partition: offset
            for table in self.tables.values()
            for partition, offset in table.data.restored_offsets().items()
        }

    async def drain_queues(self) -> None:
        """Let work in flight finish before partitions are revoked."""
        self.ready, self.opened = False, 0
        await self.runtime.drain()


def new_app(group: str, config: WorkerConfig) -> App:
    """Return an app of one consumer group. Settings that deviate from Faust's give the reason."""
    membership = Membership(config.kafka, group, config.instance, config.data)
    app = App(
        group,
        broker=[f"kafka://{address}" for address in config.kafka.split(",")],
        broker_credentials=broker_credentials(),
        broker_client_id=membership.client_id,
        store="memory://",
        TableManager=Tables,
        PartitionAssignor=EpochAssignor,
        datadir=config.data,
        autodiscover=False,  # it swallows modules that fail to import
        origin=None,
        web_enabled=False,
        topic_allow_declare=False,  # topics are created explicitly, with our settings
        topic_disable_leader=True,
        table_standby_replicas=0,  # Faust would feed a standby row by row, and starve the rest
        stream_wait_empty=False,
        stream_recovery_delay=0.0,
        stream_buffer_maxsize=32,  # counts fetches, not records
        stream_publish_on_commit=False,
        broker_commit_interval=1.0,
        broker_session_timeout=SESSION_TIMEOUT_S,
        broker_heartbeat_interval=HEARTBEAT_S,
        broker_max_poll_interval=600.0,
        consumer_auto_offset_reset="earliest",
        consumer_group_instance_id=membership.static_id,
        producer_acks=-1,
        worker_redirect_stdouts=False,
    )
    app.membership = membership
    app.on_rebalance_complete.connect(_prepare_positions)
    app.on_before_shutdown.connect(_close)
    app.task(refetch_stalled_partitions)
    return app


def _exit_on_timeout() -> None:
    log.warning("worker.shutdown_timeout", after_s=SHUTDOWN_TIMEOUT_S)
    os._exit(0)  # state is safe at any line


async def _prepare_positions(app: Any, **_kwargs: Any) -> None:
    if not await _are_prepared(app):
        return
    app.ready = True
    if app.health is not None:
        app.health.wait_for()


async def _are_prepared(app: Any, delays: Sequence[float] = AT_WORK_S) -> bool:
    """Open the partitions; while a broker is away, again. Return False without an assignment.

    While it waits nothing is fetched, but the worker stays in its group. Once it is out, others
    may have its partitions.
    """
    generation = app.consumer_generation_id
    for attempt in count():
        app.consumer.keep_membership()
        try:
            await app.consumer.prepare_positions()
        except IllegalStateError as error:  # the assignment is gone: the next one is on its way
            log.info("assignment.superseded", reason=str(error))
            return False
        except CannotOpenYet as error:
            retry_s = delay_s(AT_START_S, attempt)
            log.warning("positions.waiting", reason=str(error), retry_s=retry_s)
            if app.health is not None:
                app.health.wait_for(error.what, reason=error.reason)
        except Exception as error:
            if not (passes(error) or isinstance(error, POSTGRES_LOST)):
                exit_fatally("positions", error)  # Faust would stop, slowly, and exit with 0
            retry_s = delay_s(delays, attempt)
            log.warning("positions.retrying", reason=str(error) or repr(error), retry_s=retry_s)
        else:
            if not _is_put_out(app):
                return True
            await app.drain_queues()
            return False
        await asyncio.sleep(retry_s)
        if app.should_stop or app.consumer_generation_id != generation:
            log.info("assignment.superseded", reason="the group rebalances")
            return False
        if _is_put_out(app):
            return False
    return False


def _is_put_out(app: Any) -> bool:
    """Return whether the worker is no longer in its group, which it then joins again."""
    if app.consumer.is_member:
        return False
    log.info("assignment.superseded", reason="the worker is no longer in its group")
    app.consumer.keep_membership()  # aiokafka does not join for a member that is idle
    return True


async def _close(app: Any, **_kwargs: Any) -> None:
    await app.runtime.close()


def register_agent(app: App, runtime: PartitionAgent, topic: str) -> None:
    """Feed `runtime` from `topic`."""
    app.source_topics = frozenset({topic})
    app.runtime = runtime
    source = app.topic(topic, schema=RecordBatchSchema(), key_type=bytes, value_type=bytes)

    @app.agent(source, name=topic)  # type: ignore[untyped-decorator]
    async def feed(stream: Any) -> None:
        stream.enable_acks = False  # offsets are reported by the runtime when they took effect
        async for event in stream.events():
            generation = event.message.generation_id
            for tp, batch in event.value:
                await runtime.accept(tp, generation, batch)
