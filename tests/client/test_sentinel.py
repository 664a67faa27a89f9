"""Readers and publishers follow the primary that Sentinels name."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headstart.connections.redis_addresses import sentinel_address
from headstart.connections.redis_clients import connect
from headstart.keys import MODES, PUBLISHED
from headstart.thresholds.reader import AsyncThresholds, Threshold, Thresholds, redis_address
from sinks.connections import RedisUnreachable, redis_client
from tests.cluster_reads import async_reader, publish, thread_reader, threshold
from tests.patience import until
from tests.sentinels import NAME, Sentinels, running_sentinels

PATH = "workflow_type=refund"


def test_readers_and_publishers_follow_a_failover(sentinels: Sentinels) -> None:
    publish(sentinels.url, threshold(PATH, 1))
    with connect(sentinels.url, socket_timeout=10) as client:
        client.hset(MODES, PUBLISHED, "a run id")
        until(lambda: client.execute_command("WAIT", 1, 1000) == 1)
    with Thresholds(sentinels.url, timeout_s=5.0) as reader:
        assert reader.get(workflow_type="refund").version == (1, 1)
        sentinels.fail_over()
        publish(sentinels.url, threshold(PATH, 2))
        until(lambda: reader.get(workflow_type="refund").version == (1, 2))
        publish(sentinels.url, threshold(PATH, 3))  # announced by the new primary
        until(lambda: reader.get(workflow_type="refund").version == (1, 3))
        until(lambda: not reader.get(workflow_type="refund").stale)

    async def read() -> Threshold:
        async with AsyncThresholds(sentinels.url, timeout_s=5.0) as other:
            return await other.get(workflow_type="refund")

    assert asyncio.run(read()).version == (1, 3)


@pytest.mark.parametrize("kind", [thread_reader, async_reader])
def test_the_connections_of_queries_follow_a_failover(sentinels: Sentinels, kind: Any) -> None:
    """Nothing is followed, so that each answer needs the connection that was open before."""
    publish(sentinels.url, threshold(PATH, 1))
    with connect(sentinels.url, socket_timeout=10) as client:
        until(lambda: client.execute_command("WAIT", 1, 1000) == 1)
    with kind(sentinels.url, staleness_s=0.0, timeout_s=5.0) as get:
        assert get().version == (1, 1)
        sentinels.fail_over()
        publish(sentinels.url, threshold(PATH, 2))
        until(lambda: get().version == (1, 2), 60.0, seen=get)
        assert not get().stale


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Sentinels]:
    """Three Sentinels, two of which must agree that the primary is away."""
    with running_sentinels(tmp_path, count=3, quorum=2) as made:
        yield made


def test_two_sentinels_of_three_agree_on_a_failover(three: Sentinels) -> None:
    publish(three.url, threshold(PATH, 1))
    with connect(three.url, socket_timeout=10) as client:
        until(lambda: client.execute_command("WAIT", 1, 1000) == 1)
    with Thresholds(three.url, timeout_s=5.0) as reader:
        assert reader.get(workflow_type="refund").version == (1, 1)
        three.kill_sentinel()
        three.fail_over()
        publish(three.url, threshold(PATH, 2))
        until(lambda: reader.get(workflow_type="refund").version == (1, 2))
        until(lambda: not reader.get(workflow_type="refund").stale)
    assert "#quorum 2/2" in three.logs()


def test_one_sentinel_of_three_lets_no_replica_take_over(three: Sentinels) -> None:
    """What is known stays, marked as stale: nothing tells which server is right."""
    publish(three.url, threshold(PATH, 1))
    with Thresholds(three.url, timeout_s=5.0) as reader:
        assert reader.get(workflow_type="refund").version == (1, 1)
        three.kill_sentinel()
        three.kill_sentinel()
        three.kill_primary()
        until(lambda: "+sdown master" in three.logs())
        answer = reader.get(workflow_type="refund")
        assert (answer.version, answer.stale) == ((1, 1), True)
        with pytest.raises(RedisUnreachable, match="no Sentinel that answers knows a primary"):
            publish(three.url, threshold(PATH, 2))
    assert "+switch-master" not in three.logs()


def test_a_name_that_no_sentinel_knows(sentinels: Sentinels) -> None:
    wrong = sentinels.url.replace(NAME, "another")

    async def ping() -> None:
        async with redis_client(wrong) as client:
            await client.ping()

    with pytest.raises(RedisUnreachable, match="knows a primary of this name") as caught:
        asyncio.run(ping())
    assert "secret" not in str(caught.value)


def test_no_sentinel_answers_gives_the_default_in_bounded_time() -> None:
    begun = time.monotonic()
    with Thresholds("redis+sentinel://127.0.0.1:1,127.0.0.1:2/primary") as reader:
        answer = reader.get(workflow_type="refund")
    assert answer.stale
    assert answer.version is None
    assert time.monotonic() - begun < 15.0


@pytest.mark.parametrize(
    "url",
    [
        "redis+sentinel://",
        "redis+sentinel://localhost",
        "redis+sentinel:///primary",
        "redis+sentinel://localhost:0/primary",
        "redis+sentinel://localhost:99999/primary",
        "redis+sentinel://localhost:port/primary",
        "redis+sentinel://localhost,/primary",
        "redis+sentinel://localhost/primary/zero",
        "redis+sentinel://localhost/primary?no_such_option=1",
        "redis+sentinel://local host/primary",
    ],
)
@pytest.mark.parametrize("reader", [Thresholds, AsyncThresholds])
def test_an_invalid_sentinel_url_is_named(reader: Any, url: str) -> None:
    with pytest.raises(ValueError, match=r"^redis_url: .*redis://127.0.0.1:6379/0"):
        reader(url)


def test_the_parts_of_a_url() -> None:
    url = (
        "rediss+sentinel://me:p%40ss@[::1]:26380,other.example/primary/2"
        "?ssl_ca_certs=/ca.crt&sentinel_username=watch&sentinel_password=s%2Fcret"
    )
    found = sentinel_address(url)
    assert found.sentinels == [("::1", 26380), ("other.example", 26379)]
    assert found.name == "primary"
    assert found.options == {
        "username": "me", "password": "p@ss", "db": 2, "ssl": True, "ssl_ca_certs": "/ca.crt"
    }  # fmt: skip
    assert found.sentinel_options({"socket_timeout": 0.5, "username": "x"}, "none") == {
        "ssl": True, "ssl_ca_certs": "/ca.crt", "socket_timeout": 0.5,
        "username": "watch", "password": "s/cret", "retry": "none",
    }  # fmt: skip
    assert redis_address(url) == "[::1]:26380,other.example/primary/2"
