"""The service of retrieval: a pool of connections, one transaction and one tenant a request."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import uuid4

import psycopg
from psycopg import AsyncConnection, errors
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout, TooManyRequests

from headstart.connections.secret_variables import current_address
from memory.cases.offered_tools import OfferedTools
from memory.embedding.interface import Embedder, EmbeddingUnavailable
from memory.retrieval.attempts import SearchedParts, attempts, too_slow
from memory.retrieval.embedding import QueryEmbedding, VectorModel
from memory.retrieval.equal_runs import EqualRuns, equal_runs
from memory.retrieval.evidence import CaseEvidence, evidence_of, pool_size, stored_policy
from memory.retrieval.journal import LoggedStage, Stage, add_stage, log_search, read_stages
from memory.retrieval.profile_limits import UserProfiles, profile_limits, read_user_profiles
from memory.retrieval.quiet_logs import quiet_psycopg
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import Retrieval
from memory.retrieval.search import QueryVector, Search
from memory.retrieval.statements import statement
from memory.retrieval.words import WordCounter
from sinks.connections import PostgresUnreachable, postgres_address, postgres_options
from sinks.postgres.reading import NotMigrated

_LOG = logging.getLogger(__name__)
T = TypeVar("T")
Connection = AsyncConnection[Any]

TIMEOUT_S: Final = 2.0
EMBEDDING_TIMEOUT_S: Final = 0.5
CONNECTIONS: Final = 4
_LOAD_S: Final = 10.0
"""Longest wait for models at the opening; a hanging endpoint may not even be asked later."""
_MODEL_KEPT_S: Final = 5.0
_POOL_SHARE: Final = 0.8
"""Of a request's time that it may wait for a connection: then the error names the reason."""
_AWAY_S: Final = 5.0
"""After a failure to connect, requests are answered at once for so long."""
_MOST_WAITING: Final = 1_000
_READER: Final = "headstart_reader"
_SERVER_ENDED: Final = (errors.AdminShutdown, errors.CrashShutdown)
_TRANSIENT: Final = (errors.QueryCanceled, *_SERVER_ENDED)
_NOT_MIGRATED: Final = (
    errors.UndefinedTable, errors.UndefinedColumn, errors.UndefinedFunction, errors.UndefinedObject,
)  # fmt: skip
_COMPARES: Final = frozenset({"vector", "hybrid"})
"""Modes that compare vectors."""


class ChosenEpisodes(NamedTuple):
    """What a request keeps of what was found, and the version of the policy that chose it."""

    found: Retrieval
    policy: int | None = None


Ranking = Callable[[Connection, Retrieval], Awaitable[ChosenEpisodes]]


async def _as_found(_connection: Connection, found: Retrieval) -> ChosenEpisodes:
    return ChosenEpisodes(found)


class RetrievalService:
    """Answers requests of any number of tasks of one event loop; `async with` opens and closes it.

    `timeout_s`: of a whole request; opening waits as long for the models, at most 10 s, and what is
    not loaded then loads on. `embedding_timeout_s`: of a request's embedding, part of it.
    `journal`: log each search as the stage `retrieve`.
    """

    def __init__(
        self,
        dsn: str,
        embedders: Sequence[Embedder],
        *,
        timeout_s: float = TIMEOUT_S,
        embedding_timeout_s: float = EMBEDDING_TIMEOUT_S,
        connections: int = CONNECTIONS,
        journal: bool = False,
    ) -> None:
        self._dsn, self._timeout_s, self._journal = dsn, timeout_s, journal
        self._embedding = QueryEmbedding(embedders, embedding_timeout_s)
        self._words = WordCounter()
        self._logs = ExitStack()
        self._role = "none"
        self._away = ("", 0.0)
        self._failed = 0
        self._model: tuple[VectorModel | None, float] = (None, 0.0)
        self._running: set[asyncio.Task[Any]] = set()
        self._pool: AsyncConnectionPool[AsyncConnection[Any]] = AsyncConnectionPool(
            partial(current_address, dsn),
            kwargs=partial(_current_options, dsn),
            min_size=1,
            max_size=connections,
            max_waiting=_MOST_WAITING,
            timeout=timeout_s * _POOL_SHARE,
            configure=self._look_at_role,
            open=False,
        )

    async def __aenter__(self) -> Self:
        self._logs.enter_context(quiet_psycopg())
        await self._pool.open(wait=False)
        await self._embedding.load(min(_LOAD_S, self._timeout_s))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for task in self._running:
            task.cancel()
        self._embedding.close()
        await self._pool.close(timeout=1.0)
        self._logs.close()

    async def search(self, query: MemoryQuery) -> Retrieval:
        """Return what was found; what could not be searched is named in `degraded`.

        Ends within `timeout_s`, whatever happens to the services, and raises none of their errors.
        """
        id = str(uuid4())
        answered, why = await self._tried(self._answered(query, id, _as_found))
        return answered or Retrieval(id, (), (why,))

    async def evidence(
        self, query: MemoryQuery, writer: str = "", offered: OfferedTools | None = None
    ) -> CaseEvidence:
        """Return what finished runs say together, at most k clusters of them.

        `writer`: of the run that asks, as `memory.episodes.record.writer_of` names it. `offered`:
        runs whose calls cannot be made with these tools are left out. As `search` it ends in time
        and raises no error of a service.
        """
        id = str(uuid4())
        whole = CaseEvidence((), Retrieval(id, ()))

        async def rank(connection: Connection, found: Retrieval) -> ChosenEpisodes:
            nonlocal whole
            policy = await stored_policy(connection, query.tenant)
            whole = evidence_of(query, found, policy, time.time() * 1000, writer, offered)
            return ChosenEpisodes(whole.retrieval, whole.policy)

        pool = replace(query, k=pool_size(query, offered))
        answered, why = await self._tried(self._answered(pool, id, rank))
        if answered is None:
            return CaseEvidence((), Retrieval(id, (), (why,)), reason=why)
        if not whole.cases and not whole.reason:  # nothing was ranked
            whole = whole._replace(reason="; ".join(answered.degraded))
        return whole._replace(retrieval=answered)

    async def equal_runs(self, query: MemoryQuery, keys: Sequence[str] | None = None) -> EqualRuns:
        """Return of each writer the newest finished run of an equal query in an equal context.

        `keys`: of the context that must be equal; None: all. Not logged. As `search` it ends in
        time and raises no error of a service.
        """

        async def read(connection: Connection) -> EqualRuns:
            return await equal_runs(connection, query, keys)

        found, why = await self._tried(self._in_transaction(query.tenant, read))
        return found or EqualRuns(degraded=(why,), complete=False)

    async def profiles(self, tenant: str) -> tuple[UserProfiles | None, str]:
        """Return what the users of a tenant have set; None, and why, if it cannot be read."""

        async def read(connection: Connection) -> UserProfiles:
            return await read_user_profiles(connection, tenant)

        return await self._tried(self._in_transaction(tenant, read))

    async def log(self, tenant: str, id: str, stage: Stage, data: Mapping[str, Any]) -> str:
        """Add a stage of a retrieval; return why it was not added, "" if it was.

        As `search` it ends in time and raises no error of a service.
        """

        async def add(connection: Connection) -> bool:
            await add_stage(connection, tenant, id, stage, data)
            return True

        _, why = await self._tried(self._in_transaction(tenant, add))
        return why

    async def stages(self, tenant: str, id: str) -> list[LoggedStage]:
        """Return the stages of a retrieval, in order; none if Postgres is away."""

        async def read(connection: Connection) -> list[LoggedStage]:
            return await read_stages(connection, tenant, id)

        found, _ = await self._tried(self._in_transaction(tenant, read))
        return found or []

    async def _tried(self, work: Coroutine[Any, Any, T]) -> tuple[T | None, str]:
        """Return the result, or None and why there is none."""
        if time.monotonic() < self._away[1]:
            work.close()
            return None, self._away[0]
        try:
            return await self._within_time(work), ""
        except TimeoutError:
            return None, too_slow(self._timeout_s)
        except _NOT_MIGRATED:
            return None, str(NotMigrated(self._dsn, errors.UndefinedTable()))
        except PoolTimeout as error:
            return None, self._not_lent(error)
        except (psycopg.Error, OSError) as error:
            _LOG.debug("a retrieval failed", exc_info=error)
            if isinstance(error, psycopg.Error) and error.sqlstate is not None:
                said = " ".join(str(error).split())
                return None, f"Postgres at {postgres_address(self._dsn)} refused it: {said}"
            return None, str(PostgresUnreachable(self._dsn, error))

    def _not_lent(self, error: PoolTimeout) -> str:
        """Return why no connection was free; if none can be made, later requests do not wait."""
        failed = self._pool.get_stats().get("connections_errors", 0)
        if failed == self._failed:
            return f"all connections to Postgres were busy for {self._timeout_s * _POOL_SHARE:g} s"
        self._failed = failed
        why = str(PostgresUnreachable(self._dsn, error))
        self._away = why, time.monotonic() + _AWAY_S
        return why

    async def _within_time(self, work: Coroutine[Any, Any, T]) -> T:
        # Not asyncio.timeout: it would wait until psycopg has cancelled the query, and a server
        # that hangs does not answer that either.
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._forget)
        try:
            done, _ = await asyncio.wait({task}, timeout=self._timeout_s)
        finally:
            if not task.done():
                task.cancel()
        if not done:
            raise TimeoutError
        return task.result()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # was returned, or came too late

    async def _answered(self, query: MemoryQuery, id: str, rank: Ranking) -> Retrieval:
        degraded: list[str] = []
        vector = None
        if query.mode in _COMPARES:
            vector, why = await self._query_vector(query.text)
            degraded += [why] if why else []
        for parts in attempts(query.mode, vector, self._timeout_s):
            found = Retrieval(id, (), (*degraded, *parts.missing))
            try:
                return await self._attempted(query, parts, found, rank)
            except errors.QueryCanceled as error:
                _LOG.debug("a retrieval took too long", exc_info=error)
        raise TimeoutError

    async def _attempted(
        self, query: MemoryQuery, parts: SearchedParts, found: Retrieval, rank: Ranking
    ) -> Retrieval:
        """Return `found` with its episodes; without vectors if Postgres refuses to search them."""
        try:
            return await self._searched(query, parts, found, rank)
        except psycopg.Error as error:
            # In a pipeline the next statement may raise it, so it does not say which one failed;
            # if it was not that on vectors, it fails again.
            if parts.vector is None or error.sqlstate is None or isinstance(error, _TRANSIENT):
                raise
            said = " ".join((error.diag.message_primary or str(error)).split())
            missing = f"vectors were not searched: {said}"
            found = found._replace(degraded=(*found.degraded, missing))
            return await self._searched(query, parts._replace(vector=None), found, rank)

    async def _query_vector(self, text: str) -> tuple[QueryVector | None, str]:
        """Return the vector of the text, or why there is none."""
        try:
            model = await self._stored_model()
            if model is None:
                return None, "vectors were not searched: none are stored yet"
            return QueryVector(model, await self._embedding.vector(text, model)), ""
        except EmbeddingUnavailable as error:
            return None, f"vectors were not searched: {error}"

    async def _stored_model(self) -> VectorModel | None:
        model, until = self._model
        if until < time.monotonic():
            model = await self._in_transaction("", _read_model)
            self._model = model, time.monotonic() + _MODEL_KEPT_S
        return model

    async def _searched(
        self, query: MemoryQuery, parts: SearchedParts, found: Retrieval, rank: Ranking
    ) -> Retrieval:
        """Return `found` with its episodes, and log it if that is wanted."""
        begun = time.monotonic()

        async def run(connection: Connection) -> Retrieval:
            whole = found
            limits = await profile_limits(connection, query)
            if limits.off:
                return found._replace(degraded=(limits.off,))
            if query.mode != "vector" or parts.vector is not None:
                words = self._words if parts.words else None
                search = Search(connection, query, words, parts.vector, limits.filters)
                episodes = await search.run()
                degraded = (*found.degraded, *search.degraded)
                whole = found._replace(episodes=episodes, degraded=degraded)
            ranked = await rank(connection, whole)
            took_ms = (time.monotonic() - begun) * 1000
            if not self._journal:
                return ranked.found
            return await log_search(connection, query, ranked.found, took_ms, ranked.policy)

        return await self._in_transaction(query.tenant, run, parts.timeout_s)

    async def _in_transaction(
        self,
        tenant: str,
        work: Callable[[Connection], Awaitable[T]],
        timeout_s: float | None = None,
    ) -> T:
        """Run `work` in a transaction that sees one tenant; again if the connection was stale."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        try:
            return await self._once(tenant, work, timeout_s)
        except (PoolTimeout, PoolClosed, TooManyRequests):
            raise
        except psycopg.OperationalError as error:
            if error.sqlstate is not None and not isinstance(error, _SERVER_ENDED):
                raise
        await self._pool.check()  # a restarted server has ended all idle connections too
        return await self._once(tenant, work, timeout_s)

    async def _once(
        self, tenant: str, work: Callable[[Connection], Awaitable[T]], timeout_s: float
    ) -> T:
        # In pipeline mode statements travel together: a request waits four times, not ten.
        async with self._pool.connection() as connection, connection.pipeline():
            timeout = str(max(1, round(timeout_s * 1000)))
            which = {"tenant": tenant, "timeout": timeout, "role": self._role}
            await connection.execute(statement("settings"), which)
            return await work(connection)

    async def _look_at_role(self, connection: Connection) -> None:
        """Find out, for a new connection, whether it can take the role that sees one tenant."""
        row = await (await connection.execute(statement("may_be_reader"))).fetchone()
        self._role = _READER if row and row[0] else "none"
        await connection.rollback()


def _current_options(dsn: str) -> dict[str, Any]:
    """Return the parameters of a connection; with a DSN that cannot be parsed it fails."""
    try:
        return {**postgres_options(current_address(dsn)), "application_name": "headstart-memory"}
    except psycopg.ProgrammingError:
        return {}


async def _read_model(connection: Connection) -> VectorModel | None:
    row = await (await connection.execute(statement("model"))).fetchone()
    return VectorModel(*row) if row else None
