"""Trains the ranking policy of each tenant from its finished runs, a bounded step at a time.

A version is a function of the version before and of the runs that it learns, whose number is fixed.
Nothing is stored before it is complete: killed at any line, the next worker begins the version
again, and comes to the same weights.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, suppress
from typing import Final

import psycopg
import structlog

from agents.memory.assembling import StepTarget
from memory.ranking.case_window import FinishedCase
from memory.ranking.policy_learning import PolicyLearner
from memory.store.policies import (
    LearnedRun,
    LearnedRuns,
    PolicyVersion,
    add_version,
    boundary,
    due_tenants,
    lock_training,
    newest_version,
    unlock_training,
)

log = structlog.get_logger()

LOOK_S: Final = 60.0
"""How often all tenants are looked at for runs that wait to be learned."""
SETTLE_S: Final = 60.0
"""A run is learned when it ended so long ago: others that ended before it have been stored."""
STEP_S: Final = 0.05
"""What a step may take, but for one statement: events wait for it to be assembled."""
WINDOW: Final = 1_000
"""Earlier runs of a workflow type that a run is compared with, the newest."""
MOST_KNOWN: Final = 8_000
"""Earlier runs that are read for a version, of all its workflow types."""
_AT_ONCE: Final = 100


class PolicyTraining:
    """Goes through the tenants, and trains those of which enough runs have finished."""

    def __init__(
        self,
        settle_s: float = SETTLE_S,
        look_s: float = LOOK_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: monotonic, in seconds."""
        self.runs = 0
        """Runs learned since it began."""
        self.versions = 0
        self._settle_s, self._look_s, self._clock = settle_s, look_s, clock
        self._work: AsyncGenerator[None, None] | None = None
        self._next_look = float("-inf")

    async def reset(self) -> None:
        """Drop what is under way: it belonged to another connection."""
        work, self._work, self._next_look = self._work, None, float("-inf")
        if work is not None:
            await work.aclose()

    async def step(self, target: StepTarget) -> bool:
        """Do a step; return whether it should go on at once. Raises psycopg's errors."""
        if self._work is None:
            if self._clock() < self._next_look:
                return False
            self._work = self._all_tenants(target)
        work, self._work = self._work, None
        self._next_look = self._clock() + self._look_s
        try:
            await anext(work)
        except StopAsyncIteration:
            return False
        self._work = work
        return True

    async def _all_tenants(self, target: StepTarget) -> AsyncGenerator[None, None]:
        """Train a version of each tenant that is due, in turn, until none is."""
        before = -1
        while self.versions > before:
            before = self.versions
            after: str | None = ""
            while after is not None:
                due, after = await due_tenants(target.connection, after, self._settle_s)
                yield
                for tenant in due:
                    async with aclosing(self._tenant(target, tenant)) as steps:
                        async for _ in steps:
                            yield

    async def _tenant(self, target: StepTarget, tenant: str) -> AsyncGenerator[None, None]:
        connection = target.connection
        if not await lock_training(connection, tenant):
            return
        try:
            base = await newest_version(connection, tenant)
            to = await boundary(connection, tenant, base, self._settle_s)
            if to is not None:
                async with aclosing(self._version(target, tenant, base, to)) as steps:
                    async for _ in steps:
                        yield
        finally:
            with suppress(psycopg.Error):  # a lost connection has no locks
                await unlock_training(connection, tenant)

    async def _version(
        self, target: StepTarget, tenant: str, base: PolicyVersion, to: LearnedRun
    ) -> AsyncGenerator[None, None]:
        reader = LearnedRuns(target.connection, tenant, vectors=target.model is not None)
        learner = PolicyLearner(base.policy, base.standing)
        kinds = await reader.kinds(base.after, to)
        each = min(WINDOW, MOST_KNOWN // max(1, len(kinds)))
        for kind in kinds:
            for _ in _in_steps(learner.know, await reader.known(kind, base.after, each)):
                yield
        after, count = base.after, 0
        while after != to and (cases := await reader.next(after, to, _AT_ONCE)):
            for _ in _in_steps(lambda case: learner.learn(case, learner.ask(case)), cases):
                yield
            after = LearnedRun(cases[-1].ended, cases[-1].id)
            count += len(cases)
        await self._store(target, tenant, PolicyVersion(
            base.version + 1, learner.policy, learner.standing, to, base.learned + count
        ))  # fmt: skip
        self.runs += count

    async def _store(self, target: StepTarget, tenant: str, trained: PolicyVersion) -> None:
        status = await add_version(target.connection, tenant, trained)
        self.versions += 1
        if status is not None:
            figures = trained.standing.metrics()
            log.info(
                "memory.policy", tenant=tenant, version=trained.version, status=status,
                runs=trained.learned, gain=round(figures["gain"], 4),
            )  # fmt: skip


def _in_steps(take: Callable[[FinishedCase], None], cases: list[FinishedCase]) -> Iterator[None]:
    """Take in cases; yield whenever a step has used up its time."""
    begun = time.monotonic()
    for case in cases:
        take(case)
        if time.monotonic() - begun > STEP_S:
            yield
            begun = time.monotonic()
    yield
