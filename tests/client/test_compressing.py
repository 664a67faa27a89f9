"""Large frames are compressed if a setting enables it, small ones never; readers do not notice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import UnknownTopicOrPartitionError
from aiokafka.protocol.metadata import MetadataResponse_v1

from headstart import Emitter
from headstart.codecs import CodecMissing, require_codec
from headstart.emitting.emitter import TOPIC
from headstart.shipping.compressing_producer import COMPRESS_BYTES, CompressingProducer
from tests.client.broker_log import FIELDS, Log


class Producer:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[object] = []

    def create_batch(self) -> Any:
        return self

    async def send_batch(self, batch: Any, _topic: str, *, partition: int) -> Any:
        self.sent.append(batch)


def test_a_frame_s_size_decides() -> None:
    plain, compressing = Producer(), Producer()

    async def run() -> None:
        both = CompressingProducer(plain, compressing)
        for size in (1, COMPRESS_BYTES - 1, COMPRESS_BYTES, 900_000):
            compressed = both.compresses(size)
            await both.send(both.batch(compressed=compressed), TOPIC, 0, compressed=compressed)
        assert not CompressingProducer(plain).compresses(900_000)

    asyncio.run(run())
    assert plain.sent == [plain] * 2
    assert compressing.sent == [compressing] * 2


class Watched(Producer):
    """Has the real cache of the cluster's metadata, and a task that sends."""

    def __init__(self) -> None:
        super().__init__()
        self.client = SimpleNamespace(cluster=ClusterMetadata())
        self._sender = SimpleNamespace(_sender_task=asyncio.ensure_future(asyncio.Event().wait()))

    def learn(self, partitions: int, error: int = 0) -> None:
        """Receive the broker's answer about the topic."""
        described = [(0, n, 1, [1], [1]) for n in range(partitions)]
        topics = [(error, TOPIC, False, described)] if partitions or error else []
        self.client.cluster.update_metadata(MetadataResponse_v1([(1, "b", 9092, None)], 1, topics))


@pytest.mark.parametrize(
    ("partitions", "error"), [(16, 0), (0, UnknownTopicOrPartitionError.errno)]
)
def test_both_producers_stop_when_the_topic_is_another(partitions: int, error: int) -> None:
    async def run() -> None:
        plain, compressing, changes = Watched(), Watched(), list[str]()
        plain.learn(8)
        both = CompressingProducer(plain, compressing)
        both.watch_partitions(TOPIC, 8, lambda: changes.append("changed"))
        plain.learn(8)
        compressing.learn(0)  # it learns of the topic when it sends
        compressing.learn(8)
        assert not changes
        assert not plain._sender._sender_task.cancelling()
        compressing.learn(partitions, error)
        plain.learn(partitions, error)
        assert changes == ["changed"]
        assert [each._sender._sender_task.cancelling() for each in (plain, compressing)] == [1, 1]

    asyncio.run(run())


@pytest.mark.integration
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "memory"])
def test_events_arrive_as_emitted_in_order(
    log: Log,
    compression: Any,
    durable: bool,
    tmp_path: Path,
) -> None:
    with Emitter(
        log.kafka, spool=tmp_path, durable=durable, compression=compression, linger_s=0.02
    ) as emitter:
        for n in range(300):
            emitter.emit(FIELDS, tenant=log.tenant, n=n)
            if n == 3:
                emitter.flush(60)  # a small frame first
    assert [event["n"] for event in log.events()] == list(range(300))


def test_an_unknown_codec_and_a_missing_package_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="lz4, zstd or None"):
        Emitter("127.0.0.1:1", compression="gzip")  # type: ignore[arg-type]
    monkeypatch.setattr("headstart.codecs.find_spec", lambda _name: None)
    with pytest.raises(CodecMissing, match=r"headstart\[compression\]"):
        require_codec("zstd")
