"""Cases of several tenants in a file, which the processes of an evaluation read by tenant."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from headstart.prediction.interface import ToolCall
from memory.cases.case import Case
from replay.memories.run_sorter import open_scratch

_TABLE: Final = "CREATE TABLE cases (tenant TEXT, at INTEGER, key TEXT, body BLOB)"
_INDEX: Final = "CREATE INDEX by_time ON cases (tenant, at, key)"
_NEWEST: Final = "SELECT body FROM cases WHERE tenant = ? ORDER BY at DESC, key DESC LIMIT ?"
_COUNTS: Final = "SELECT tenant, count(*) FROM cases GROUP BY tenant ORDER BY count(*) DESC, tenant"
_AT_ONCE: Final = 500


@dataclass(frozen=True)
class CaseStore:
    """Cases by tenant. `newest`: of each tenant so many are read, the others are counted only."""

    file: Path
    newest: int

    def write(self, cases: Iterable[tuple[str, Case]]) -> None:
        """Store (tenant, case), once."""
        with closing(open_scratch(self.file)) as connection:
            connection.execute(_TABLE)
            for some in _batched(cases):
                connection.execute("BEGIN")
                connection.executemany("INSERT INTO cases VALUES (?, ?, ?, ?)", map(_row, some))
                connection.execute("COMMIT")
            connection.execute(_INDEX)

    def counts(self) -> dict[str, int]:
        """Return how many cases each tenant has, most first."""
        with closing(sqlite3.connect(self.file)) as connection:
            return dict(connection.execute(_COUNTS).fetchall())

    def cases(self, tenant: str) -> list[Case]:
        """Return the newest cases of a tenant, in the order of their times."""
        with closing(sqlite3.connect(self.file)) as connection:
            rows = connection.execute(_NEWEST, (tenant, self.newest)).fetchall()
        return [_case(body) for (body,) in reversed(rows)]


def _batched(cases: Iterable[tuple[str, Case]]) -> Iterator[list[tuple[str, Case]]]:
    some: list[tuple[str, Case]] = []
    for each in cases:
        some.append(each)
        if len(some) == _AT_ONCE:
            yield some
            some = []
    yield some


def _row(owned: tuple[str, Case]) -> tuple[Any, ...]:
    tenant, case = owned
    calls = [(call.tool, call.arguments) for call in case.calls]
    return tenant, case.at or 0, case.key, orjson.dumps([[*case._replace(calls=())], calls])


def _case(body: bytes) -> Case:
    fields, calls = orjson.loads(body)
    return Case(*fields)._replace(calls=tuple(ToolCall(*call) for call in calls))
