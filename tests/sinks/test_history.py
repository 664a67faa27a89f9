"""Threshold history: every version once, readable per context."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from sinks.connections import connect_postgres
from sinks.postgres.batch_writer import RejectedRow
from sinks.postgres.history import HistorySink, encode_threshold
from sinks.postgres.queries import history_of_context

pytestmark = pytest.mark.integration


def change(tenant: str, offset: int, **fields: Any) -> dict[str, Any]:
    return {
        "tenant": tenant,
        "workflow_type": "refund\t\\",
        "path": "workflow_type=refund/domain=retail",
        "speculate": 0.1 + 0.2,
        "suggest": 0.7,
        "epoch": 2**33,
        "offset": offset,
        "outcomes": 12,
        "learner": "ema",
        "at": 1_750_000_000_123,
        **fields,
    }


def test_every_version_is_kept_once_and_comes_back_exactly(migrated: str, tenant: str) -> None:
    changes = [change(tenant, offset) for offset in (5, 6, 2**52)]
    refused: list[RejectedRow] = []

    async def keep(found: Any) -> None:
        refused.extend(found)

    async def run() -> None:
        async with await HistorySink.open(migrated) as sink:
            batch = [encode_threshold(orjson.dumps(each)) for each in changes]
            beyond = encode_threshold(orjson.dumps(changes[0]).replace(b":5,", b":%d," % 2**70))
            assert (
                await sink.store([*batch, beyond], {0: 9}, topic="h", epoch=1, on_refused=keep) == 3
            )
            assert await sink.store(batch, {0: 9}, topic="h", epoch=1, on_refused=keep) == 0
            assert await sink.next_offsets("h", 1) == {0: 9}
        async with await connect_postgres(migrated) as connection:
            path = changes[0]["path"]
            assert await history_of_context(connection, tenant, path) == changes[::-1]
            assert await history_of_context(connection, tenant, path, limit=1) == changes[2:]
            at = changes[0]["at"]
            assert len(await history_of_context(connection, tenant, path, since=at)) == 3
            assert await history_of_context(connection, tenant, path, since=at + 1) == []

    asyncio.run(run())
    assert [refusal.position for refusal in refused] == [3]


def test_sinks_keep_their_offsets_apart(migrated: str, tenant: str) -> None:
    async def run() -> None:
        async with await HistorySink.open(migrated) as sink:
            await sink.store([], {0: 9}, topic="h", epoch=1, on_refused=None)  # type: ignore[arg-type]
        async with await connect_postgres(migrated) as connection:
            row = await (await connection.execute("SELECT * FROM sink_offsets")).fetchone()
            assert row == ("headstart-history", "h", 1, 0, 9)

    asyncio.run(run())


@pytest.mark.parametrize(
    "value",
    [b"", b"x", b"{}", b"[]", b"\xff", b'"\xff"', b"[" * 100_000,
     orjson.dumps(change("t", 1, speculate="0.9")), orjson.dumps(change("t", 1, at=None))],
    ids=lambda value: str(value[:12]),
)  # fmt: skip
def test_invalid_thresholds_are_rejected(value: bytes) -> None:
    with pytest.raises(ValueError, match="not a threshold"):
        encode_threshold(value)


def test_defaults_and_deleted_contexts_have_rows_too(migrated: str, tenant: str) -> None:
    default = change(tenant, 5, workflow_type="", path="default")
    gone = change(tenant, 6, learner="", outcomes=0)

    async def refuse(found: Any) -> None:
        raise AssertionError(found)

    async def run() -> None:
        async with await HistorySink.open(migrated) as sink:
            batch = [encode_threshold(orjson.dumps(each)) for each in (default, gone)]
            assert await sink.store(batch, {0: 7}, topic="h", epoch=1, on_refused=refuse) == 2
        async with await connect_postgres(migrated) as connection:
            assert await history_of_context(connection, tenant, "default") == [default]

    asyncio.run(run())
