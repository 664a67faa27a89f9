"""A user who was purged and comes back: what is learned then is not what a purge has left."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from sinks.connections import connect_postgres
from sinks.postgres.purges import remaining_rows
from tests.memory.complaints.purging import LATER, everybody, filled, of_user, purged, refer_to

pytestmark = pytest.mark.integration

PATH = "workflow_type=refund/domain=retail/user_id=u1"
ADD = """
    INSERT INTO threshold_history VALUES
    ('acme', 'refund', %s, 1, %s, .5, .5, %s, %s,
        timestamptz 'epoch' + %s * interval '1 millisecond')
"""


def left(dsn: str) -> dict[str, int]:
    async def look() -> dict[str, int]:
        async with await connect_postgres(dsn) as connection:
            return await remaining_rows(connection, of_user())

    return asyncio.run(look())


def test_the_deletion_of_a_context_of_later_is_not_left_of_a_purge(migrated: str) -> None:
    """The history has a row without a time for each deleted context."""
    filled(migrated, *everybody())
    refer_to(migrated, "mine-1")
    assert left(migrated)["threshold_history"] == 1
    purged(migrated, of_user())
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(ADD, [PATH, 2, 0, "", 0])
        assert left(migrated) == {"threshold_history": 1}, "the deletion by the purge came late"
        purged(migrated, of_user(id="p2"))
        assert left(migrated) == {}
        connection.execute(ADD, [PATH, 5, 1, "td", LATER + 1])
        connection.execute(ADD, [PATH, 6, 0, "", 0])
        assert left(migrated) == {}
        connection.execute(ADD, [f"{PATH}/region=eu", 7, 0, "", 0])
        assert left(migrated) == {"threshold_history": 1}
