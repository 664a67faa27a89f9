"""The drill: a filled system is saved, lost and restored, and both are compared."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psycopg
import pytest

from bench.backup import drill
from bench.support.table_digests import table_digests

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

EVENTS, CONTEXTS, EPOCH = 4_000, 200, 7
CHANGES = {
    "threshold_history": "UPDATE threshold_history SET speculate = speculate + 1e-15",
    "sink_offsets": "UPDATE sink_offsets SET next_offset = 3 WHERE epoch = 7",
    "notices": "DELETE FROM notices",
}


def test_a_filled_system_is_restored_and_verified(tmp_path: Path) -> None:
    found = drill(tmp_path, EVENTS, CONTEXTS)
    assert found["equal"], found["differing"]
    assert (found["events"], found["contexts"], found["left"]) == (EVENTS, CONTEXTS, 0)
    assert found["log_records"] > 0 < found["bytes"]
    assert found["total_s"] >= found["restore_s"] + found["verify_s"] > 0
    assert not (tmp_path / ".backup").exists()


def test_digests_of_tables_show_each_change(migrated: str) -> None:
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO threshold_history VALUES"
            " ('acme', 'refund', 'p', 1, 2, .9, .8, 10, 'hops', now())"
        )
        connection.execute("INSERT INTO sink_offsets VALUES ('c', 't', 7, 0, 2)")
        connection.execute("INSERT INTO sink_offsets VALUES ('headstart-restore', 'id', 7, 0, 0)")
        connection.execute(
            "INSERT INTO notices VALUES ('n', 'drift', 'acme', 'refund', 'p', 1, '{}', 0)"
        )
        before = asyncio.run(table_digests(migrated, EPOCH))
        connection.execute("INSERT INTO sink_offsets VALUES ('c', 't', 8, 0, 5)")
        connection.execute("UPDATE sink_offsets SET next_offset = 1 WHERE topic = 'id'")
        assert asyncio.run(table_digests(migrated, EPOCH)) == before
        assert {name for name, (rows, _sum) in before.items() if rows} == CHANGES.keys()
        for table, change in CHANGES.items():
            connection.execute(change.encode())
            after = asyncio.run(table_digests(migrated, EPOCH))
            assert {name for name in after if after[name] != before[name]} == {table}
            before = after
