"""Readers and a publisher live on when Redis, and their files, have certificates of another CA."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local import StackError
from deploy.local.secure.programs import redis_server
from sinks.connections import RedisUnreachable
from tests.lasting_clients import lasting_clients, numbered, until_read
from tests.secure.tls_redis import KINDS, TlsRedis


@pytest.fixture(params=KINDS)
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[TlsRedis]:
    try:
        redis_server()
    except StackError as error:
        pytest.skip(str(error))
    made = TlsRedis(tmp_path, request.param)
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_replaced_certificates_need_no_restart(servers: TlsRedis) -> None:
    asyncio.run(rotate(servers))


async def rotate(servers: TlsRedis) -> None:
    """All clients are made once, and live through a certificate whose key is still the old one."""
    async with lasting_clients(servers.url) as (publisher, reads):
        await publisher.publish([numbered(1)])
        for read in reads:
            await until_read(read, 1)
        servers.rotate()
        for names in ((), ("ca", "cert")):
            servers.issue("ca-1", *names)
            with pytest.raises(RedisUnreachable):
                await publisher.publish([numbered(2)])
            for read in reads:
                assert (await read()).speculate == 0.01
        servers.issue("ca-1", "key")
        await publisher.publish([numbered(2)])
        for read in reads:
            await until_read(read, 2)
