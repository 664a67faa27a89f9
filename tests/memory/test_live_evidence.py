"""Agents guess with a real memory: events, episodes in Postgres, evidence, and events again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import pytest

from agents.memory.assembling import StepTarget, assemble_next
from agents.memory.embedding import GuardedEmbedder
from headstart import Threshold
from headstart.events.validation import validate
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.speculator import AsyncSpeculator
from memory.cases.case import Case
from memory.episodes.hashes import id_of_text
from memory.retrieval.client import Memory
from memory.speculation.past_cases import PastCases
from memory.speculation.predictor import MemoryEvidence
from sinks.connections import connect_postgres
from tests.memory.repeated_tasks import BackOffPredictor, log_loss, offline, repeated, utility
from tests.memory.stored_runs import AT, WordEmbedder, store

pytestmark = pytest.mark.integration

BLOCK = 10
RUNS = 70


class Act:
    """Starts every guess of at least .7."""

    async def mode(self, tenant: str = "default", agent_id: str | None = None) -> str:
        return "act"

    async def get(self, context: Any = None, /, *, tool: str | None = None) -> Threshold:
        return Threshold(speculate=0.7, suggest=0.5)


class Log:
    """An emitter whose events are stored by the test; a second passes with each."""

    def __init__(self, tenant: str) -> None:
        self.tenant, self.all, self.waiting = tenant, list[dict[str, Any]](), list[Any]()

    def emit(self, event: Mapping[str, Any], /) -> str:
        at = AT + len(self.all) * 1_000
        full = {"id": str(uuid4()), "timestamp": at, **event, "tenant": self.tenant}
        validate(full)
        self.all.append(full)
        self.waiting.append(full)
        return str(full["id"])


async def drained(dsn: str) -> None:
    """Make episodes of all stored events, as the worker does."""
    async with await connect_postgres(dsn) as connection:
        target = StepTarget(connection, GuardedEmbedder(WordEmbedder()), None)
        while (await assemble_next(target, 500, 0)).rows:
            pass


async def answered(tool: str, arguments: Mapping[str, object]) -> str:
    return f"{tool} {arguments}"


async def play(
    speculator: AsyncSpeculator, predictor: Any, case: Case, scope: Mapping[str, object]
) -> None:
    """Let an agent make the calls of a case, one at each answer of its model."""
    user = case.writer.removeprefix("user:")
    run = AgentRun[str](
        speculator, predictor.run(user_id=user), {**scope, "user_id": user}, guess_s=60.0
    )
    run.user(case.query)
    for number, call in enumerate(case.calls):
        run.model_started(answered)
        await run.guessed()
        asked = RequestedCall(f"c{number}", call.tool, call.arguments)
        matches = run.model_answered([asked])
        if asked.id in matches:
            run.tool_finished(asked.id, await matches[asked.id].result())
        else:
            run.tool_finished(asked.id, await answered(call.tool, call.arguments))
    run.model_answered([])  # a reply, which ends the run
    run.finished(response="Done.")


async def agents(dsn: str, tenant: str, cases: Sequence[Case]) -> tuple[Log, list[Any]]:
    """Run the cases, with episodes made of their events after every block of them."""
    log = Log(tenant)
    past = PastCases.of_database(dsn, "refund", tenant=tenant, refresh_s=1e6, max_age_s=1e6)
    predictor = MemoryEvidence(BackOffPredictor(), past)
    speculator = AsyncSpeculator(Act(), log, allowed={c.tool for e in cases for c in e.calls})  # type: ignore[arg-type]
    degraded = [await asyncio.to_thread(past.refresh)]
    scope = {"workflow_type": "refund", "domain": "retail"}
    for begin in range(0, len(cases), BLOCK):
        for case in cases[begin : begin + BLOCK]:
            await play(speculator, predictor, case, scope)
        await store(dsn, log.waiting)
        log.waiting = []
        await drained(dsn)
        degraded.append(await asyncio.to_thread(past.refresh))
    await speculator.close()
    past.close()
    assert degraded == [""] * len(degraded)
    return log, [each.tools for each in past.snapshot().cases]


def test_repeated_tasks_are_guessed_with_better_confidence(migrated: str, tenant: str) -> None:
    cases = repeated(RUNS, tasks=6)
    log, stored = asyncio.run(agents(migrated, tenant, cases))
    assert stored == [each.tools for each in cases], "each run is an episode, in order"

    starts = [each for each in log.all if each["event_type"] == "speculation_start"]
    expected = list(offline(cases, block=BLOCK))
    assert [each["confidence"] for each in starts] == [found for _, found, _ in expected]
    owns = [each["data"]["memory"]["own_confidence"] for each in starts]
    assert owns == [own for own, _, _ in expected]

    alone = [(own, right) for own, _, right in expected]
    with_memory = [(found, right) for _, found, right in expected]
    assert log_loss(with_memory) < log_loss(alone) - 0.04
    assert utility(with_memory) > 1.8 * utility(alone)

    named = {id for each in starts for id in each["data"]["memory"]["episodes"]}
    with Memory(migrated, tenant=tenant, embedders=(), journal=False) as memory:
        found = memory.search("", mode="exact", context={}, keys=(), workflow_type="refund", k=500)
    assert {id_of_text(each) for each in named} < {each.id for each in found.episodes}
    asyncio.run(check_episodes(migrated, cases, named))


async def check_episodes(dsn: str, cases: Sequence[Case], named: set[str]) -> None:
    """Episodes have calls with arguments, the query, and the episodes that they referred to."""
    sql = "SELECT query, reference_ids FROM episodes ORDER BY ended"
    async with await connect_postgres(dsn) as connection:
        rows = await (await connection.execute(sql)).fetchall()
    assert [query for query, _ in rows] == [each.query for each in cases]
    assert all(ids == [] for _, ids in rows[:BLOCK])
    assert sum(bool(ids) for _, ids in rows) > RUNS // 2
    assert {id for _, ids in rows for id in ids} == {id_of_text(each) for each in named}


def test_a_database_that_is_away_delays_no_guess(closed: str, tenant: str) -> None:
    host, _, port = closed.partition(":")
    past = PastCases.of_database(f"host={host} port={port} dbname=x user=y", "refund")
    predictor = MemoryEvidence(BackOffPredictor(), past)
    log = Log(tenant)
    speculator = AsyncSpeculator(Act(), log)  # type: ignore[arg-type]

    async def run() -> float:
        begun = time.perf_counter()
        for case in repeated(5):
            await play(speculator, predictor, case, {"workflow_type": "refund"})
        return time.perf_counter() - begun

    assert asyncio.run(run()) < 10
    reasons = {
        each["data"]["memory"]["degraded"]
        for each in log.all
        if each["event_type"] == "speculation_start"
    }
    assert reasons
    assert all(reasons)
    past.refresh()
    assert "Postgres" in past.snapshot().degraded
    past.close()


def test_memory_makes_no_tool_eligible(migrated: str, tenant: str) -> None:
    """A tool that is not allowed is not started, however many past runs speak for it."""
    cases = [each._replace(writer=f"user:u{n % 5}") for n, each in enumerate([*repeated(1) * 20])]
    log = Log(tenant)

    async def run() -> list[int]:
        past = PastCases.of_database(
            migrated, "refund", tenant=tenant, refresh_s=1e6, max_age_s=1e6
        )
        predictor = MemoryEvidence(BackOffPredictor(), past)
        speculator = AsyncSpeculator(Act(), log)  # type: ignore[arg-type]
        for case in cases:
            await play(speculator, predictor, case, {"workflow_type": "refund"})
            if len(log.all) and not past.snapshot().cases:
                await store(migrated, log.waiting)
                await drained(migrated)
                await asyncio.to_thread(past.refresh)
        past.close()
        return [int(speculator.stats()["started"])]

    assert asyncio.run(run()) == [0]
    sure = [e for e in log.all if e["event_type"] == "speculation_start" and e["confidence"] > 0.7]
    assert sure
    assert all(each["data"]["prediction"]["not_startable"] == "tool" for each in sure)
