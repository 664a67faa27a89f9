"""The epochs that the databases store, and the error when a database is away."""

from __future__ import annotations

import asyncio

import pytest
import redis

from sinks.connections import PostgresUnreachable, RedisUnreachable, connect_postgres
from sinks.epochs import REDIS_KEY, known_epochs, remember_epoch
from sinks.postgres.episodes import EpisodeSink
from sinks.postgres.migrate import migrate


@pytest.mark.integration
def test_the_largest_epoch_of_each_database_is_found(database: str, redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        client.delete(REDIS_KEY)

    async def run() -> None:
        assert await known_epochs(database, redis_url) == []
        await migrate(database)
        assert await known_epochs(database, redis_url) == []
        async with await EpisodeSink.open(database) as sink:
            for epoch in (3, 2**40, 4):
                await sink.store([], {0: 1}, topic="t", epoch=epoch, on_refused=None)  # type: ignore[arg-type]
        for epoch in (9, 2**41, 10):
            await remember_epoch(redis_url, epoch)
        assert await known_epochs(database, redis_url) == [2**40, 2**41]

    asyncio.run(run())
    with redis.Redis.from_url(redis_url) as client:
        client.delete(REDIS_KEY)


@pytest.mark.parametrize(
    ("dsn", "address"),
    [
        ("postgresql://u:secret@127.0.0.1:1/shop", "127.0.0.1:1/shop"),
        ("host=127.0.0.1 port=1 dbname=shop password=secret", "127.0.0.1:1/shop"),
        ("secret is no dsn", "an invalid connection string"),
    ],
)
def test_postgres_away_is_one_clear_line_without_the_password(dsn: str, address: str) -> None:
    with pytest.raises(PostgresUnreachable) as caught:
        asyncio.run(connect_postgres(dsn))  # type: ignore[arg-type]
    message = str(caught.value)
    assert address in message
    assert ("headstart up" in message) is ("127.0.0.1" in address)
    assert "--postgres DSN or HEADSTART_POSTGRES" in message
    assert "HEADSTART_POSTGRES" in message
    assert "secret" not in message
    assert "\n" not in message


def test_redis_away_is_an_error() -> None:
    with pytest.raises(RedisUnreachable):
        asyncio.run(remember_epoch("redis://127.0.0.1:1", 1))
