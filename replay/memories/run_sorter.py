"""Sorts the events of a history by their runs, on disk: in memory is one run at a time."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from memory.episodes.run_event import MAX_BYTES, MAX_EVENTS, RunEvent, run_event

RunKey = tuple[str, str, str]
"""Tenant, workflow type and workflow id."""
_TABLE: Final = """
    CREATE TABLE events (tenant TEXT, workflow_type TEXT, workflow_id TEXT, at INTEGER, id TEXT,
        event BLOB, data BLOB)
"""
_INSERT: Final = "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?)"
_SORTED: Final = """
    SELECT tenant, workflow_type, workflow_id, event, data FROM events
    ORDER BY tenant, workflow_type, workflow_id, at, id
"""


def open_scratch(file: Path) -> sqlite3.Connection:
    """Open a database that is only needed by this process: nothing survives a crash."""
    connection = sqlite3.connect(file, isolation_level=None)
    for setting in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE", "cache_size=-16000"):
        connection.execute(f"PRAGMA {setting}")
    return connection


class RunSorter:
    """Takes events in any order, and yields them by run. `file`: is created."""

    def __init__(self, file: Path) -> None:
        self._connection = open_scratch(file)
        self._connection.execute(_TABLE)

    def add(self, events: Iterable[Mapping[str, Any]]) -> None:
        """Add events in the form in which they are emitted. Raises `ValueError`."""
        self._connection.execute("BEGIN")
        self._connection.executemany(_INSERT, map(_row, events))
        self._connection.execute("COMMIT")

    def runs(self) -> Iterator[tuple[RunKey, list[RunEvent]]]:
        """Yield each run with its events in order.

        Events beyond the bounds of `memory.episodes.run_event` come without their content, as the
        memory worker reads them.
        """
        key: RunKey | None = None
        found: list[RunEvent] = []
        size = 0
        for tenant, workflow_type, workflow_id, event, data in self._connection.execute(_SORTED):
            if (tenant, workflow_type, workflow_id) != key:
                if key is not None:
                    yield key, found
                key, found, size = (tenant, workflow_type, workflow_id), [], 0
            size += len(data)
            whole = len(found) < MAX_EVENTS and size <= MAX_BYTES
            own = run_event(orjson.loads(event))
            found.append(own._replace(data=data if whole else b"{}"))
        if key is not None:
            yield key, found

    def close(self) -> None:
        """Close the file."""
        self._connection.close()


def _row(event: Mapping[str, Any]) -> tuple[Any, ...]:
    plain = {name: value for name, value in event.items() if name != "data"}
    kept = run_event(plain)
    data = event.get("data") or {}
    return (
        event["tenant"], event["workflow_type"], event["workflow_id"], kept.timestamp, kept.id,
        orjson.dumps(plain), orjson.dumps(data),
    )  # fmt: skip
