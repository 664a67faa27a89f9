"""A Sentinel, or a node of a cluster, that accepts connections and says nothing: its host hangs.

It must not keep the subscription of a reader from asking the others.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from headstart.connections.redis_failures import NoServerAnswers
from headstart.thresholds.feeds import new_feed

REFUSING = "127.0.0.1:1"


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that answers nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("url", ["redis+sentinel://{}/primary", "redis+cluster://{}"])
def test_the_next_one_is_asked(silent: str, url: str) -> None:
    async def opened() -> None:
        feed = new_feed(url.format(f"{silent},{REFUSING}"), 0.1)
        try:
            async with asyncio.timeout(20.0):
                await feed.open()
        finally:
            await feed.close()

    with pytest.raises(NoServerAnswers) as raised:
        asyncio.run(opened())
    assert list(raised.value.errors) == [silent, REFUSING]
