"""Large frames are compressed where a setting says so, small ones never; nobody else notices."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headstart import Emitter
from headstart.codecs import CodecMissing, require_codec
from headstart.emitting.emitter import TOPIC
from headstart.shipping.compressing_producer import COMPRESS_BYTES, CompressingProducer
from tests.client.test_emitter import FIELDS, Log, log, topics  # noqa: F401 - fixtures


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


@pytest.mark.integration
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
@pytest.mark.parametrize("durable", [True, False], ids=["durable", "memory"])
def test_events_arrive_as_emitted_in_order(
    log: Log,  # noqa: F811
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
