"""Faust's consumer and transport, changed to fetch batch-wise.

Offsets are not acknowledged message by message: the agent reports the next offset of a partition
with `Consumer.done`. It is committed as a hint; the rows hold the offset that counts.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import Any, Final

from aiokafka.errors import ConsumerStoppedError
from faust.serializers.schemas import Schema
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread, server_list
from faust.transport.drivers.aiokafka import Consumer as StockConsumer
from faust.transport.drivers.aiokafka import Producer as StockProducer
from faust.transport.drivers.aiokafka import Transport as StockTransport
from faust.types import TP, ConsumerMessage

from agents.consumer import socket_reader
from agents.consumer.epoch_assignor import EpochRoundRobin
from agents.consumer.fetch_loop import fetched_records
from agents.fatal import exit_fatally
from processing.records.batch import RecordBatch, empty_batch
from topics.kafka import fetch_patch
from topics.kafka.asking_again import ask_again
from topics.kafka.topic_states import describe_topics

FETCH_WAIT_MS: Final = 25
"""How long a broker may hold a fetch. Kafka answers at once when there is data, so this only costs
an idle worker some requests; the embedded broker looks for data twice in that time, and Faust's
1,500 ms made a threshold 750 ms late."""
IDLE_AFTER_S: Final = 5.0
IDLE_FETCH_WAIT_MS: Final = 100
"""The same of a consumer that fetched nothing for `IDLE_AFTER_S`: 40 empty answers a second took a
tenth of a core in a threshold worker, and as much in the embedded broker."""
EXTRA_FETCH_BYTES: Final = 4_000_000
"""Of one fetch response, besides the maximum of one partition. aiokafka copies it twice, so its
default of 50 MB takes 150 MB in a backlog, and gains nothing."""


def start_patiently(client: Any, transport: Any) -> None:
    """Have a client of aiokafka ask again for a while if no broker can be used when it starts.

    Faust would end the process, and its logins may just be being replaced.
    """
    client.bootstrap = partial(ask_again, _brokers(transport), client.bootstrap)


def _brokers(transport: Any) -> str:
    return ",".join(server_list(transport.url, transport.default_port))


Fetch = list[tuple[TP, RecordBatch]]
"""The batches of one call of the fetch loop: the value of a message."""


class ConsumerThread(AIOKafkaConsumerThread):  # type: ignore[misc]
    """Fetches source topics batch-wise."""

    _found_at = 0.0

    async def on_thread_stop(self) -> None:
        """Disconnect; leave the group if another member can take over.

        A static member that only disconnects keeps its partitions, unprocessed, for the whole
        session timeout. The only member keeps them: it will return, and an empty group makes the
        next member wait (Kafka's group.initial.rebalance.delay.ms).
        """
        consumer = self._consumer
        if consumer is not None and not self._owns_all_partitions(consumer):
            consumer._coordinator._group_instance_id = None  # aiokafka: static members never leave
        await super().on_thread_stop()

    def _owns_all_partitions(self, consumer: Any) -> bool:
        owned = {(tp.topic, tp.partition) for tp in consumer.assignment()}
        used = self.app.used_partitions
        return all(
            (topic, partition) in owned
            for topic in self.app.source_topics
            for partition in consumer.partitions_for_topic(topic) or ()
            if used is None or partition < used
        )

    def _create_worker_consumer(self, transport: Any) -> Any:
        socket_reader.install()
        fetch_patch.install()
        consumer = super()._create_worker_consumer(transport)
        start_patiently(consumer._client, transport)
        if self._assignor is not self.app.assignor:  # an app without tables
            assignor = EpochRoundRobin(self.app.used_partitions)
            consumer._partition_assignment_strategy = [assignor]
        consumer._isolation_level = fetch_patch.ISOLATION
        consumer._fetch_max_wait_ms = self.app.gather_ms
        consumer._fetch_min_bytes = self.app.gather_bytes
        consumer._max_partition_fetch_bytes = self.app.partition_bytes
        consumer._fetch_max_bytes = self.app.partition_bytes + EXTRA_FETCH_BYTES
        return consumer

    @property
    def member_id(self) -> str:
        """The id that the group knows this consumer by; empty before it joins, or once put out."""
        return "" if self._consumer is None else str(self._consumer._coordinator.member_id)

    def keep_membership(self) -> None:
        """Begin `broker_max_poll_interval` again, after which an idle member leaves."""
        if self._consumer is not None:
            self._consumer._subscription._last_fetch_ended = monotonic()

    async def crash(self, reason: BaseException) -> None:
        """End the process: nothing is fetched without this thread."""
        membership = self.app.membership
        exit_fatally("consumer", membership.explained(reason) if membership else reason)

    async def _highwaters(self, partitions: Iterable[TP]) -> Mapping[TP, int]:
        """Return the last stable offsets: the ends that this consumer can reach.

        Of a changelog, its beginning: recovery is not Faust's, so it must find nothing to restore.
        """
        states = await describe_topics(_brokers(self.transport), {tp.topic for tp in partitions})
        return {
            tp: (states[tp.topic].end if self._is_source(tp) else states[tp.topic].begin)[
                tp.partition
            ]
            for tp in partitions
        }

    def _is_source(self, tp: TP) -> bool:
        return tp.topic in self.app.source_topics

    async def _fetch_records(
        self,
        consumer: Any,
        active_partitions: set[TP],
        timeout: float | None = None,  # noqa: ASYNC109 - Faust's signature
        max_records: int | None = None,
    ) -> dict[TP, list[Any]]:
        if not self.consumer.flow_active:
            return {}
        fetcher = consumer._fetcher
        if consumer._closed or fetcher._closed:
            raise ConsumerStoppedError
        with fetcher._subscriptions.fetch_context():
            records = await fetched_records(
                fetcher,
                active_partitions,
                self.app.source_topics,
                timeout or 0.0,
                max_records,
                self.consumer.paused,
                self.app.prefetch_scan,
                self.app.partition_bytes,
            )
        self._pace(fetcher, bool(records))
        return records

    def _pace(self, fetcher: Any, found: bool) -> None:
        """Have the next fetches wait longer while there is nothing to fetch."""
        now = monotonic()
        if found:
            self._found_at = now
        wait_ms = self.app.gather_ms
        if now - self._found_at > IDLE_AFTER_S:
            wait_ms = max(wait_ms, IDLE_FETCH_WAIT_MS)
        fetcher._fetch_max_wait_ms = wait_ms


class Consumer(StockConsumer):  # type: ignore[misc]
    """A Faust consumer whose messages are fetches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._done: dict[TP, int] = {}
        self._committable: dict[TP, int] = {}
        self._positions: Mapping[TP, int] = {}
        self._member_id = ""
        self.paused: set[TP] = set()
        """Partitions whose queue is full."""
        super().__init__(*args, **kwargs)

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    async def getmany(
        self,
        timeout: float,  # noqa: ASYNC109 - Faust's signature
    ) -> AsyncIterator[tuple[TP, ConsumerMessage]]:
        """Yield one message for all source partitions that were fetched; of others each record.

        Faust makes two tasks for each message and waits for them: with a message per partition,
        records were 10 ms old when the next fetch was requested.
        """
        generation = self.app.consumer_generation_id
        records, active = await self._wait_next_records(timeout)
        if not records or self.should_stop or not self.flow_active:
            return
        if generation != self.app.consumer_generation_id:
            return
        fetch: Fetch = []
        for tp, found in records.items():
            if tp not in active:
                continue
            if tp.topic in self.app.source_topics:
                fetch += [(tp, batch) for batch in found]
            else:
                for record in found:
                    yield tp, self._to_message(tp, record)
        if fetch:
            tp = fetch[0][0]
            self._read_offset.pop(tp, None)  # or Faust drops what is fetched again as old
            yield tp, self._message(fetch)

    def _message(self, fetch: Fetch) -> ConsumerMessage:
        tp, first = fetch[0]
        return ConsumerMessage(
            first.topic,
            first.partition,
            first.offset,
            (first.timestamps or (0,))[0] / 1000.0,  # a batch may be only markers
            0,
            [],
            None,
            fetch,
            None,
            -1,
            -1,
            tp,
            generation_id=self.app.consumer_generation_id,
        )

    def done(self, tp: TP, end: int, *, commit: bool = True) -> None:
        """Report that everything below offset `end` took effect and, with `commit`, commit it."""
        self._done[tp] = end
        if commit:
            self._committable[tp] = end

    def pause(self, tp: TP, paused: bool) -> None:
        """Pause or resume a partition.

        Not by Faust's own back-pressure, which checks only once a second when all are paused.
        """
        (self.paused.add if paused else self.paused.discard)(tp)

    def commit_done(self, tp: TP) -> None:
        """Commit what was reported of a partition without `commit`."""
        if tp in self._done:
            self._committable[tp] = self._done[tp]

    def reached(self) -> dict[TP, int]:
        """Return the offset below which everything took effect, by partition."""
        return {**self._positions, **self._done}

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterable[TP]:
        return [
            tp for tp in self._committable if topics is None or tp in topics or tp.topic in topics
        ]

    def _new_offset(self, tp: TP) -> int | None:
        return self._committable.get(tp)

    async def commit_and_end_transactions(self) -> None:
        """Commit the last offsets; Faust would take a commit in flight for this one."""
        await self.maybe_wait_for_commit_to_finish()
        await super().commit_and_end_transactions()

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Do nothing: gaps are found by fetch positions, not by the offsets of records."""

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Remember the id under which the group assigned them."""
        self._member_id = self._thread.member_id
        await super().on_partitions_assigned(assigned, generation_id)

    @property
    def is_member(self) -> bool:
        """Whether the group knows this consumer; else others may have its partitions."""
        return bool(self._thread.member_id)

    def keep_membership(self) -> None:
        """Stay in the group, though nothing is fetched; call more often than every ten minutes."""
        self._thread.keep_membership()

    async def _end_if_name_is_taken(self) -> None:
        """End the process if it was put out of its group by another of its instance name."""
        membership = self.app.membership
        if membership is None or not self._member_id or self._thread.member_id:
            return
        try:
            taken = await membership.taken_since(self._member_id)
        except ConnectionError:  # joining the group waits for the broker
            return
        if taken is not None:
            exit_fatally("group", taken)

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Let work in flight finish, then clear the offsets of the old assignment."""
        await self._end_if_name_is_taken()
        await self.app.drain_queues()
        await super().on_partitions_revoked(revoked)
        self._done.clear()
        self._committable.clear()
        self._positions = {}
        self.paused.clear()

    async def prepare_positions(self) -> None:
        """Open the partitions, after Faust's recovery and before anything is fetched."""
        await super().perform_seek()
        committed = {tp: offset or 0 for tp, offset in self._committed_offset.items()}
        assigned = {tp for tp in self.assignment() if tp.topic in self.app.source_topics}
        begin = await self.app.positions(assigned, committed)
        self._positions = await self._after_deleted(begin)

    async def _after_deleted(self, begin: Mapping[TP, int]) -> Mapping[TP, int]:
        """Return where the log has records; report those that retention deleted unread.

        At once: a log of which all is deleted has nothing to fetch that would show a gap.
        """
        earliest = await self.earliest_offsets(*begin) if begin else {}
        after = {tp: earliest[tp] for tp, offset in begin.items() if earliest.get(tp, 0) > offset}
        for tp, offset in after.items():
            nothing = empty_batch(tp.topic, tp.partition, offset)
            await self.app.runtime.accept(tp, self.app.consumer_generation_id, nothing)
        return {**begin, **after}

    async def perform_seek(self) -> None:
        """Seek to the positions that the app returned, not to the committed offsets."""
        await super().perform_seek()
        assigned = self.assignment()
        positions = {tp: offset for tp, offset in self._positions.items() if tp in assigned}
        if positions:
            await self.seek_wait(positions)


class Producer(StockProducer):  # type: ignore[misc]
    """Faust's producer; no agent uses it, and Faust starts it."""

    def _new_producer(self) -> Any:
        producer = super()._new_producer()
        start_patiently(producer.client, self.transport)
        return producer


class Transport(StockTransport):  # type: ignore[misc]
    """Faust's aiokafka transport with these clients."""

    Consumer, Producer = Consumer, Producer


class RecordBatchSchema(Schema):  # type: ignore[misc]
    """Passes the fetch on unchanged: the agent decodes it and handles errors."""

    def compile(self, app: Any, **_kwargs: Any) -> Callable[..., Awaitable[Any]]:
        """Return Faust's decode function for a source topic."""
        create_event = app.create_event

        async def decode(message: Any, **_propagate: bool) -> Any:
            return create_event(None, message.value, message.headers, message)

        return decode
