"""Requests to the memory while a replica of Postgres takes over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from memory.retrieval.service import RetrievalService
from sinks.postgres.migrate import migrate
from tests.memory.stored_runs import WordEmbedder
from tests.patience import PATIENCE_S
from tests.standbys import PostgresPair

pytestmark = pytest.mark.integration


def test_requests_are_answered_again_by_the_new_primary(postgres_pair: PostgresPair) -> None:
    pair = postgres_pair
    asyncio.run(migrate(pair.url))
    pair.wait_replicated()

    async def run() -> None:
        async with RetrievalService(pair.url, [WordEmbedder()]) as service:

            async def until(answers: Callable[[str], bool]) -> None:
                async with asyncio.timeout(PATIENCE_S):
                    while not answers((await service.profiles("a"))[1]):  # noqa: ASYNC110
                        await asyncio.sleep(0.1)

            await until(lambda why: not why)
            await asyncio.to_thread(pair.primary.kill)
            await until(lambda why: "Postgres" in why)
            await asyncio.to_thread(pair.promote)
            await until(lambda why: not why)

    asyncio.run(run())
