"""The SQL of retrieval, with the filters of a request in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

from memory.retrieval.request import MemoryQuery
from sinks.postgres.statements import load_statements

SQL: Final = load_statements("retrieval", Path(__file__).parent / "sql")

_FILTER: Final = """ROW(%(workflow_type)s::text, %(tool)s::text, %(outcome)s::text,
    %(confidence)s::real, %(since)s::timestamptz, %(concepts)s::text[], %(domains)s::text[],
    %(event_types)s::text[], %(own_user)s::text, %(own_agent)s::text, %(own_since)s::timestamptz,
    %(without_off)s::boolean)::memory_filter"""
_JOIN: Final = "JOIN episodes e ON e.tenant = v.tenant AND e.id = v.episode"
_OWN_COLUMNS: Final = {
    "workflow_type": "AND v.workflow_type = %(workflow_type)s",
    "outcome": "AND v.outcome = %(outcome)s",
    "since": "AND v.ended >= %(since)s",
}
"""Filters that episode_vectors has columns for."""
NO_LIMITS: Final[Mapping[str, Any]] = dict.fromkeys(
    ("own_user", "own_agent", "own_since", "without_off")
)
"""Filters that come from profiles (`memory.retrieval.profile_limits`), where there are none."""
_COMMENT: Final = re.compile(rb"^-- .*\n", re.MULTILINE)

Filters = Mapping[str, Any]


@cache
def statement(name: str) -> bytes:
    """Return a statement on episodes."""
    return _COMMENT.sub(b"", SQL[name]).replace(b"{filter}", _FILTER.encode())


@cache
def vector_statement(name: str, given: frozenset[str], *, whole: bool) -> bytes:
    """Return a statement on vectors for the given filters.

    `whole`: ask `episodes` too, also for the state. Else of filters that episode_vectors has no
    column for, none may be given.
    """
    if whole:
        join, passes = _JOIN, f"AND memory_passes(e, {_FILTER})"
    else:
        join, passes = "", " ".join(_OWN_COLUMNS[each] for each in sorted(given))
    text = _COMMENT.sub(b"", SQL[name])
    return text.replace(b"{join}", join.encode()).replace(b"{passes}", passes.encode())


def needs_episodes(filters: Filters) -> bool:
    """Return whether a filter asks for what only `episodes` has."""
    return not given_filters(filters) <= _OWN_COLUMNS.keys()


def given_filters(filters: Filters) -> frozenset[str]:
    """Return the names of the filters that are given."""
    return frozenset(name for name, value in filters.items() if value is not None)


def filters_of(query: MemoryQuery) -> Filters:
    """Return the fields of memory_filter; None lets through everything."""
    return {
        "workflow_type": query.workflow_type,
        "tool": query.tool,
        "outcome": query.outcome,
        "confidence": query.min_confidence,
        "since": None if query.since is None else _moment(query.since),
        "concepts": list(query.concepts) or None,
        "domains": list(query.domains) or None,
        "event_types": list(query.event_types) or None,
        **NO_LIMITS,
    }


def _moment(at: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at)
