"""What tenants' defaults must be at rest: the tables' workflow types pooled, in every partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from learners.policy import Policy, State, spec
from learners.registry import policy as named
from processing.control.learned_defaults import decode_default
from processing.control.learner_assignments import choices_in
from processing.state.rows import CONTEXT, DEFAULT, context_of, decode_context

Rows = dict[bytes, bytes]


def differences(policy: Policy, tables: Sequence[Rows]) -> Iterator[str]:
    """Yield where a partition's default is not what all partitions' workflow types make of it."""
    learner = _for_everything(tables[0]) or spec(policy)
    wanted = _pooled(learner, tables)
    for partition, rows in enumerate(tables):
        for tenant in sorted(
            {
                context_of(key)[0]
                for table in tables
                for key in table
                if key[:1] in (CONTEXT, DEFAULT)
            }
        ):
            row = rows.get(DEFAULT + f"{tenant}\x1fdefault".encode())
            learned = None if row is None else decode_default(row).learned
            found = None if learned is None else (learned.learner, learned.state)
            right = None if tenant not in wanted else (learner, wanted[tenant])
            if found != right:
                yield f"default of {tenant} in partition {partition}: {found}, right is {right}"


def _for_everything(rows: Rows) -> str | None:
    return next((each.learner for each in choices_in(rows) if each.pattern == "*"), None)


def _pooled(learner: str, tables: Sequence[Rows]) -> dict[str, State]:
    known: dict[str, list[tuple[State, float]]] = defaultdict(list)
    for rows in tables:
        types = []
        for key, raw in rows.items():
            tenant, path = context_of(key) if key[:1] == CONTEXT else ("", "/")
            if "/" not in path and (row := decode_context(raw)).outcomes:
                types.append((-row.outcomes, path, tenant, row))
        for _, _, tenant, row in sorted(types):
            if row.learner == learner:
                known[tenant].append((row.state, float(row.outcomes)))
    pooled = named(learner).pooled
    return {tenant: pooled(*map(list, zip(*each, strict=True))) for tenant, each in known.items()}
