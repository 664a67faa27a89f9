"""Placement: the partition that Java's producer, and so every Kafka tool, gives a key."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import DefaultPartitioner, murmur2
from hypothesis import given
from hypothesis import strategies as st

from headstart.keys import event_key
from processing.records.partitioner import partition_for

name = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\x1f"), min_size=1)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # org.apache.kafka.common.utils.UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_javas(key: bytes, hashed: int) -> None:
    assert murmur2(key) & 0xFFFFFFFF == hashed & 0xFFFFFFFF


@given(name, name, st.integers(1, 300))
def test_a_key_belongs_where_the_producer_puts_it(tenant: str, flow: str, partitions: int) -> None:
    everywhere = list(range(partitions))
    chosen = DefaultPartitioner()(event_key(tenant, flow), everywhere, everywhere)
    assert partition_for(tenant, flow, partitions) == chosen


def test_keys_are_spread() -> None:
    owners = [partition_for("acme", f"flow-{n}", 8) for n in range(800)]
    assert all(60 < owners.count(partition) < 140 for partition in range(8))
