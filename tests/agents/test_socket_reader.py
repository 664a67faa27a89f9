"""What comes from a broker is read as asyncio reads it, however it is cut."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import aiokafka.conn
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.consumer import socket_reader as connection
from agents.consumer.socket_reader import ChunkedStreamReader


def piece_reader() -> ChunkedStreamReader:
    reader = ChunkedStreamReader()
    reader.reset()
    return reader


async def read_all(
    reader: asyncio.StreamReader, pieces: Sequence[bytes], sizes: Sequence[int]
) -> list[bytes | tuple[bytes, int | None]]:
    """Feed pieces while so many bytes at a time are read; return them, and how it ended."""

    async def feed() -> None:
        for piece in pieces:
            reader.feed_data(piece)
            await asyncio.sleep(0)
        reader.feed_eof()

    feeding, found = asyncio.create_task(feed()), list[Any]()
    try:
        for size in sizes:
            found.append(await reader.readexactly(size))
    except asyncio.IncompleteReadError as error:
        found.append((error.partial, error.expected))
    await feeding
    return found


@given(
    pieces=st.lists(st.binary(max_size=9), max_size=9),
    sizes=st.lists(st.integers(0, 12), max_size=12),
)
def test_it_reads_what_asyncio_reads(pieces: list[bytes], sizes: list[int]) -> None:
    async def both() -> None:
        stock = await read_all(asyncio.StreamReader(), pieces, sizes)
        assert await read_all(piece_reader(), pieces, sizes) == stock

    asyncio.run(both())


def test_a_read_fails_with_a_broken_connection() -> None:
    async def broken() -> None:
        reader = piece_reader()
        waiting = asyncio.create_task(reader.readexactly(4))
        await asyncio.sleep(0)
        reader.set_exception(ConnectionResetError("gone"))
        with pytest.raises(ConnectionResetError):
            await waiting

    asyncio.run(broken())


@pytest.fixture
def stock_protocol() -> Iterator[Any]:
    before = aiokafka.conn.AIOKafkaProtocol
    yield before
    aiokafka.conn.AIOKafkaProtocol = before


def test_connections_of_aiokafka_read_so(stock_protocol: Any) -> None:
    """As `AIOKafkaConnection.connect` makes them."""

    async def connect() -> None:
        connection.install()
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        protocol = aiokafka.conn.AIOKafkaProtocol(loop.create_future(), reader, loop=loop)
        assert isinstance(protocol, stock_protocol)
        protocol.data_received(b"abc")
        protocol.data_received(b"def")
        assert isinstance(reader, ChunkedStreamReader)
        assert [await reader.readexactly(size) for size in (2, 4)] == [b"ab", b"cdef"]

    asyncio.run(connect())
