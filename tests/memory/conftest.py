"""Two tenants with episodes, for tests of retrieval; nothing may change them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from bench.support.made_episodes import EpisodeMaker, MadeEpisode, store_episodes
from memory.embedding.wordllama import WordLlamaEmbedder
from sinks.connections import connect_postgres
from sinks.postgres.migrate import migrate
from tests.memory.stored_episodes import StoredEpisodes

ADD_EVENT = """
    INSERT INTO episodic_events (id, tenant, event_type, workflow_type, workflow_id, timestamp)
    VALUES (gen_random_uuid(), %s, %s, %s, %s, to_timestamp(%s / 1000.0))
"""


@pytest.fixture(scope="session")
def stored(postgres_dsn: str) -> Iterator[StoredEpisodes]:
    name = f"test_{uuid4().hex}"
    which = sql.Identifier(name)
    with psycopg.connect(postgres_dsn, autocommit=True) as connection:
        connection.execute(sql.SQL("CREATE DATABASE {}").format(which))
        dsn = make_conninfo(postgres_dsn, dbname=name)
        made = list(EpisodeMaker(tenants=2).made(600))
        asyncio.run(fill(dsn, made))
        yield StoredEpisodes(make_conninfo(dsn, user="headstart_reader"), dsn, made)
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(which))


async def fill(dsn: str, made: list[MadeEpisode]) -> None:
    await migrate(dsn)
    async with await connect_postgres(dsn) as connection:
        await store_episodes(connection, iter(made), WordLlamaEmbedder())
        for number, each in enumerate(made):
            kind = "user_feedback" if number % 5 == 0 else "workflow_complete"
            run: list[Any] = [each.tenant, kind, each.workflow_type, each.workflow_id, each.ended]
            await connection.execute(ADD_EVENT, run)
        await connection.execute("ANALYZE")
