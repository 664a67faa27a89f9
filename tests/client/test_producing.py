"""Events go where every Kafka client would send them."""

from __future__ import annotations

from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from headstart.kafka_producer import _partition


@given(st.none() | st.binary(), st.integers(1, 64))
def test_a_key_is_placed_as_the_client_library_places_it(key: bytes | None, count: int) -> None:
    partitions = list(range(count))
    if key is None:
        assert _partition(key, partitions, partitions[-1:]) == count - 1
    else:
        assert _partition(key, partitions, []) == DefaultPartitioner()(key, partitions, [])
