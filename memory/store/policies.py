"""Stores versions of ranking policies, and reads the finished runs that they learn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection, Rollback
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from memory.cases.case import UNKNOWN_REWARD
from memory.episodes.record import writer_of
from memory.ranking.case_window import FinishedCase
from memory.ranking.logistic import OnlineLogistic
from memory.ranking.policy import RATE, CasePolicy, knows
from memory.ranking.pool import FEATURES
from memory.ranking.standing import Standing
from memory.ranking.stored_policy import FIRST_RUNS, MOST_RUNS, runs_of_next
from memory.store.halfvec import unpack_halfvec
from memory.store.sealed_texts import open_texts
from sinks.postgres.encryption.tenant_keys import TenantKeys, keys_to_read
from sinks.postgres.statements import load_statements
from sinks.postgres.tenant_locks import lock_tenants

SQL = load_statements("policies", Path(__file__).parent / "sql")
KEPT: Final = 20
"""Versions of each tenant that are kept, with the newest."""
_TENANTS: Final = 500
"""Tenants that are looked at together."""
_QUERY: Final = 6
"""Its place in a row of a run."""
_VECTOR: Final = b"halfvec_send(v.v)"
_JOIN: Final = b"""LEFT JOIN episode_vectors AS v ON v.tenant = e.tenant AND v.episode = e.id
    AND v.model = (SELECT id FROM memory_models WHERE state = 'active')"""


class LearnedRun(NamedTuple):
    """A place in the order in which a tenant's runs are learned: by `ended` (Unix ms), then id."""

    ended: int
    id: int


BEGIN: Final = LearnedRun(0, -(2**63))


class PolicyVersion(NamedTuple):
    """A version, with what the next one begins from."""

    version: int
    policy: CasePolicy
    standing: Standing
    after: LearnedRun
    """The last run that it has learned."""
    learned: int
    """Runs that it and the versions before have learned."""

    @property
    def next_runs(self) -> int:
        """How many runs the next version learns."""
        return runs_of_next(self.learned)


async def newest_version(connection: AsyncConnection[Any], tenant: str) -> PolicyVersion:
    """Return the newest version of a tenant; version 0, which knows nothing, if there is none.

    After a change of the features learning begins again at the first run, with the next number.
    """
    row = await (await connection.execute(SQL["newest"], {"tenant": tenant})).fetchone()
    if row is None or not knows(row[1]):
        return PolicyVersion(row[0] if row else 0, CasePolicy(), Standing(), BEGIN, 0)
    version, _, weights, squares, examples, ended, state = row
    model = OnlineLogistic(weights, squares, rate=RATE, examples=examples)
    return PolicyVersion(
        version,
        CasePolicy(model, state["chance"]),
        Standing(state["standing"]),
        LearnedRun(ended, int(state["after"])),
        state["learned"],
    )


async def boundary(
    connection: AsyncConnection[Any], tenant: str, base: PolicyVersion, settle_s: float
) -> LearnedRun | None:
    """Return the last run of the version after `base`; None if too few have finished."""
    which = {**base.after._asdict(), "before": base.next_runs - 1, "settle_s": settle_s}
    cursor = await connection.execute(SQL["boundary"], {"tenant": tenant, **which})
    row = await cursor.fetchone()
    return LearnedRun(*row) if row else None


class LearnedRuns:
    """Reads a tenant's finished runs. `vectors`: whether the database has any."""

    def __init__(self, connection: AsyncConnection[Any], tenant: str, *, vectors: bool) -> None:
        self._connection, self._tenant, self._vectors = connection, tenant, vectors

    async def kinds(self, after: LearnedRun, to: LearnedRun) -> list[str]:
        """Return the workflow types of the runs after one, up to another."""
        cursor = await self._connection.execute(SQL["kinds"], self._between(after, to))
        return [kind for (kind,) in await cursor.fetchall()]

    async def known(self, kind: str, to: LearnedRun, limit: int) -> list[FinishedCase]:
        """Return the newest runs of a workflow type up to one, oldest first."""
        which = {"tenant": self._tenant, "kind": kind, "limit": limit, **to._asdict()}
        return (await self._cases("window", which))[::-1]

    async def next(self, after: LearnedRun, to: LearnedRun, limit: int) -> list[FinishedCase]:
        """Return the next runs after one, up to another, oldest first."""
        return await self._cases("runs", {**self._between(after, to), "limit": limit})

    def _between(self, after: LearnedRun, to: LearnedRun) -> dict[str, Any]:
        return {"tenant": self._tenant, **after._asdict(), "to_ended": to.ended, "to_id": to.id}

    async def _cases(self, name: str, which: Mapping[str, Any]) -> list[FinishedCase]:
        vector, join = (_VECTOR, _JOIN) if self._vectors else (b"NULL::bytea", b"")
        statement = SQL[name].replace(b"{vector}", vector).replace(b"{join}", join)
        cursor = await self._connection.execute(statement, which)
        rows = await cursor.fetchall()
        keys = await keys_to_read(
            self._connection, [self._tenant] if any(r[-1] for r in rows) else []
        )
        return [_case(self._opened(row, keys)) for row in rows]

    def _opened(self, row: tuple[Any, ...], keys: TenantKeys) -> tuple[Any, ...]:
        """Return a row with its query, which is empty if its key was shredded."""
        *columns, sealed = row
        if sealed:
            texts = open_texts(keys, self._tenant, columns[0], sealed)
            columns[_QUERY] = texts.query or ""
        return tuple(columns)


def _case(row: tuple[Any, ...]) -> FinishedCase:
    id, kind, user, agent, session, workflow, query, tools, reward, started, ended, vector = row
    return FinishedCase(
        id=id,
        kind=kind,
        writer=writer_of(user, agent, session, workflow),
        query=query,
        tools=tuple(tools),
        reward=UNKNOWN_REWARD if reward is None else reward,
        started=started,
        ended=ended,
        vector=None if vector is None else unpack_halfvec(vector),
    )


async def add_version(
    connection: AsyncConnection[Any], tenant: str, trained: PolicyVersion
) -> str | None:
    """Store a trained version; return its status, None if another worker has stored it.

    Also None if the last run that it has learned is gone: the tenant may have been erased.

    It is active if it has beaten similarity; else similarity ranks, and the version that was
    active is not any more: on the newest runs it would do no better.
    """
    standing, model = trained.standing, trained.policy.model
    status = "active" if standing.beats_similarity else "refused"
    state = {
        "after": str(trained.after.id),
        "chance": trained.policy.chance,
        "learned": trained.learned,
        "standing": standing.to_json(),
    }
    row = {
        "tenant": tenant,
        "version": trained.version,
        "features": list(FEATURES),
        "weights": model.weights,
        "accumulators": model.squares,
        "examples": model.examples,
        "ended": trained.after.ended,
        "metrics": Jsonb(standing.metrics()),
        "status": status,
        "state": Jsonb(state),
    }
    added = False
    async with connection.transaction() as transaction:
        await lock_tenants(connection, [tenant])
        last = {"tenant": tenant, "id": trained.after.id}
        if await (await connection.execute(SQL["learned"], last)).fetchone() is None:
            return None
        await connection.execute(SQL["retire"], row)
        added = bool((await connection.execute(SQL["add"], row)).rowcount)
        if not added:
            raise Rollback(transaction)
        old = {"tenant": tenant, "version": trained.version - KEPT}
        await connection.execute(SQL["forget"], old)
    return status if added else None


async def policy_versions(
    connection: AsyncConnection[Any], tenant: str, limit: int
) -> list[dict[str, Any]]:
    """Return the versions of a tenant, newest first, with their metrics and weights by feature."""
    async with connection.cursor(row_factory=dict_row) as cursor:
        await cursor.execute(SQL["versions"], {"tenant": tenant, "limit": limit})
        rows = await cursor.fetchall()
    return [
        {**row, "weights": dict(zip(row.pop("features"), row["weights"], strict=True))}
        for row in rows
    ]


async def due_tenants(
    connection: AsyncConnection[Any], after: str, settle_s: float
) -> tuple[list[str], str | None]:
    """Return those of the next tenants of which enough runs have finished for a new version.

    Also the name to go on after; None at the last tenant.
    """
    which = {
        "after": after,
        "limit": _TENANTS,
        "settle_s": settle_s,
        "first": FIRST_RUNS,
        "most": MOST_RUNS,
        "features": list(FEATURES),
    }
    rows = await (await connection.execute(SQL["due"], which)).fetchall()
    due = [tenant for tenant, is_due in rows if is_due]
    return due, rows[-1][0] if len(rows) == _TENANTS else None


async def lock_training(connection: AsyncConnection[Any], tenant: str) -> bool:
    """Return whether this connection may train a tenant's policy: no other one does."""
    row = await (await connection.execute(SQL["try_lock"], {"tenant": tenant})).fetchone()
    return bool(row and row[0])


async def unlock_training(connection: AsyncConnection[Any], tenant: str) -> None:
    """Let others train a tenant's policy."""
    await connection.execute(SQL["unlock"], {"tenant": tenant})


async def judged_tenants(connection: AsyncConnection[Any], within_s: float) -> Iterable[str]:
    """Return the tenants with uses that were judged within a time."""
    cursor = await connection.execute(SQL["judged_tenants"], {"within_s": within_s})
    return [tenant for (tenant,) in await cursor.fetchall()]


async def forget_retrievals(connection: AsyncConnection[Any], days: float, limit: int) -> int:
    """Delete up to `limit` rows of retrievals that are older; return how many."""
    which = {"days": days, "limit": limit}
    return (await connection.execute(SQL["forget_retrievals"], which)).rowcount
