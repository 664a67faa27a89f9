"""`Memory`: retrieval for agents, as plain functions; a thread of its own has the connections."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import uuid4
from weakref import WeakSet

from memory.cases.offered_tools import OfferedTools, ToolOffer
from memory.context.rendering import DEFAULT_TOKENS, ShownCase, memory_context
from memory.embedding.interface import Embedder
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.episodes.hashes import episode_id
from memory.retrieval.answers import SAFE, AnswerRule, PastAnswer, past_answer
from memory.retrieval.equal_runs import EqualRuns
from memory.retrieval.evidence import CaseEvidence, EvidenceCase
from memory.retrieval.journal import (
    LoggedStage,
    Stage,
    check_ids,
    check_judgement,
    reference_data,
)
from memory.retrieval.profile_limits import UserProfiles
from memory.retrieval.request import MemoryQuery
from memory.retrieval.result import FoundEpisode, Retrieval
from memory.retrieval.service import EMBEDDING_TIMEOUT_S, TIMEOUT_S, RetrievalService

T = TypeVar("T")
CASES: Final = 4
"""Cases of a context: the best number in Memento (arXiv 2508.16153), and on recorded runs."""
_GRACE_S: Final = 1.0


class CaseContext(NamedTuple):
    """Cases as text for a prompt, and what they were taken from."""

    text: str
    """Empty where no case is worth showing, or none fits; see `reason`."""
    shown: int
    """Cases in it, of those in `evidence` the first ones."""
    tokens: int
    """An estimate; at most what was asked for."""
    retrieval: Retrieval
    """Its episodes are the reference cases."""
    evidence: tuple[EvidenceCase, ...] = ()
    policy: int | None = None
    """Version of the policy that ranked; None: similarity."""
    reason: str = ""
    """Why the text is empty."""
    stale: int = 0
    """Found runs that are left out, because their calls cannot be made with the tools offered."""


class Memory:
    """Finds episodes of one tenant; safe to call from any thread.

    `dsn`: of Postgres. `embedders`: those whose vectors may be stored (default: wordllama). A call
    ends within `timeout_s`; the first one, which loads the model, and `answer`, which asks twice,
    within twice that; an embedding that takes longer than `embedding_timeout_s` is done without. No
    error of a service is raised: what was not searched is named in the result's `degraded`. With
    `journal`, searches are logged under the id of their `Retrieval`, and so is what becomes of them
    (`reused`, `evaluated`, `retained`).

    In async code call it by `asyncio.to_thread`; called directly it blocks the loop for as long as
    it takes.
    """

    def __init__(
        self,
        dsn: str,
        *,
        tenant: str = "default",
        embedders: Sequence[Embedder] | None = None,
        timeout_s: float = TIMEOUT_S,
        embedding_timeout_s: float = EMBEDDING_TIMEOUT_S,
        journal: bool = True,
    ) -> None:
        self._dsn, self._tenant, self._timeout_s = dsn, tenant, timeout_s
        self._embedding_timeout_s, self._journal = embedding_timeout_s, journal
        self._embedders = [WordLlamaEmbedder()] if embedders is None else embedders
        self._begin()
        _open.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._worker: _ServiceThread | None = None

    def search(self, text: str = "", **fields: Any) -> Retrieval:
        """Return episodes, best first. `fields`: those of `MemoryQuery`, such as `mode` and `k`.

        With `user_id`, and `agent_id`, of the run, the user's profile is kept to: where it is off,
        nothing is found, and `degraded` says so.

        Raises `InvalidQuery` for a request that makes no sense.
        """
        return self._search(self._query(text, fields))

    def _query(self, text: str, fields: Mapping[str, Any]) -> MemoryQuery:
        return MemoryQuery(text=text, **{"tenant": self._tenant, **fields})

    def _search(self, query: MemoryQuery) -> Retrieval:
        found = self._wait(lambda service: service.search(query))
        return found or Retrieval(str(uuid4()), (), (self._late(),))

    def _wait(self, work: Callable[[RetrievalService], Coroutine[Any, Any, T]]) -> T | None:
        """Return the result of work in the thread; None if it does not come in time."""
        found = self._running().submit(work)
        try:
            return found.result(self._timeout_s + _GRACE_S)
        except TimeoutError:
            found.cancel()
            return None

    def _late(self) -> str:
        return f"the memory did not answer within {self._timeout_s + _GRACE_S:g} s"

    def context(
        self,
        text: str,
        *,
        tokens: int = DEFAULT_TOKENS,
        writer: str = "",
        tools: ToolOffer | None = None,
        **fields: Any,
    ) -> CaseContext:
        """Return what earlier runs did, in at most 4 cases (`k`), as text for a prompt.

        Each case stands for the runs that took one course. `writer`: of the run, as
        `memory.episodes.record.writer_of` names it: a course that one other writer alone has taken
        comes last, marked as unconfirmed. `tools`: those of the agent, best with the schemas of
        their arguments: runs whose calls cannot be made with them are left out. What users and
        tools wrote is quoted and escaped. Raises `InvalidQuery`, and `ValueError` for negative
        `tokens` and for `tools` that are none.
        """
        offered = None if tools is None else OfferedTools(tools)
        query = self._query(text, {"k": CASES, **fields})
        found = self._wait(lambda service: service.evidence(query, writer, offered))
        if found is None:
            late = self._late()
            found = CaseEvidence((), Retrieval(str(uuid4()), (), (late,)), reason=late)
        text, shown, used = memory_context(list(map(shown_case, found.cases)), tokens=tokens)
        reason = found.reason or ("" if shown else f"no case fits into {tokens} tokens")
        return CaseContext(
            text, shown, used, found.retrieval, found.cases, found.policy, reason, found.stale
        )

    def answer(self, text: str, *, rule: AnswerRule = SAFE, **fields: Any) -> PastAnswer:
        """Return a past answer if `rule` allows one, and similar episodes.

        `fields` must have `workflow_type` and `context` for an answer by the default rule, and
        `user_id` (else `agent_id`) of the run that asks: it is given its own answers, and those
        that two independent writers gave. Raises `InvalidQuery`.
        """
        query = self._query(text, fields)
        equal = self._wait(lambda service: service.equal_runs(query, rule.keys))
        equal = equal or EqualRuns(degraded=(self._late(),), complete=False)
        found = self._search(query)
        episodes = [*equal.episodes, *found.episodes]
        answer = past_answer(query, episodes, rule, complete=equal.complete)
        degraded = tuple(dict.fromkeys((*equal.degraded, *found.degraded)))
        return answer._replace(degraded=degraded, retrieval=found)

    def profiles(self) -> tuple[UserProfiles | None, str]:
        """Return what the tenant's users have set, by user; None, and why, if it cannot be read."""
        found = self._wait(lambda service: service.profiles(self._tenant))
        return (None, self._late()) if found is None else found

    def reused(self, found: Retrieval, episodes: Sequence[int] | None = None) -> str:
        """Log which episodes were given to the agent (default: all that were found).

        This and the following return why nothing was logged, "" if it was.
        """
        return self._log(found, "reuse", episodes)

    def evaluated(
        self,
        found: Retrieval,
        episodes: Sequence[int] | None = None,
        *,
        reward: float | None = None,
        accepted: bool | None = None,
    ) -> str:
        """Log how the use was judged: by a reward from 0 to 1, or as accepted or rejected.

        `accepted` goes before `reward`. The last judgement of an episode counts. All judgements
        of one user are one vote; so are those of an agent whose runs name no user, and those of
        all runs that name neither. Raises `ValueError` without a judgement, and for one of a
        wrong type or out of range.
        """
        check_judgement(reward, accepted)
        return self._log(found, "evaluate", episodes, reward=reward, accepted=accepted)

    def retained(self, found: Retrieval, workflow_type: str, workflow_id: str) -> str:
        """Log the run that used the episodes: it becomes an episode itself."""
        episode = str(episode_id(self._tenant, workflow_type, workflow_id))
        return self._log(
            found, "retain", None,
            workflow_type=workflow_type, workflow_id=workflow_id, episode=episode,
        )  # fmt: skip

    def stages(self, found: Retrieval) -> list[LoggedStage]:
        """Return what was logged of a retrieval, in order."""
        return self._wait(lambda service: service.stages(self._tenant, found.id)) or []

    def _log(
        self, found: Retrieval, stage: Stage, episodes: Sequence[int] | None, **more: Any
    ) -> str:
        if not self._journal:
            return "this Memory has no journal"
        which = [each.id for each in found.episodes] if episodes is None else episodes
        check_ids(which)
        data = reference_data(which, writer=found.writer or None, **more)
        why = self._wait(lambda service: service.log(self._tenant, found.id, stage, data))
        return self._late() if why is None else why

    def close(self) -> None:
        """End the thread and its connections; a later call starts them again."""
        with self._lock:
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _running(self) -> _ServiceThread:
        with self._lock:
            if self._worker is None:
                service = RetrievalService(
                    self._dsn,
                    self._embedders,
                    timeout_s=self._timeout_s,
                    embedding_timeout_s=self._embedding_timeout_s,
                    journal=self._journal,
                )
                self._worker = _ServiceThread(service, self._timeout_s + _GRACE_S)
            return self._worker


class _ServiceThread:
    """An event loop in a thread, with a service that is open for as long as it runs."""

    def __init__(self, service: RetrievalService, start_s: float) -> None:
        """`start_s`: seconds to wait for the service to open; it opens on meanwhile."""
        self._started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._service = service
        self._thread = threading.Thread(target=self._run, name="headstart-memory", daemon=True)
        self._thread.start()
        self._started.wait(start_s)

    def submit(self, work: Callable[[RetrievalService], Coroutine[Any, Any, T]]) -> Future[T]:
        """Begin work in the loop."""
        return asyncio.run_coroutine_threadsafe(work(self._service), self._loop)

    def stop(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(_GRACE_S + 2)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with self._service:
            self._started.set()
            await self._ended.wait()


def shown_case(case: EvidenceCase) -> ShownCase:
    """Return a cluster as it is shown to an agent, by its example."""
    found, cluster, contrast = case.example, case.cluster, case.contrast
    pairs = [f"{key}={value}" for key, value in sorted(found.context.items())[:16]]
    situation = ", ".join([found.workflow_type, *pairs])
    rate, ends = cluster.success_rate, cluster.success_interval
    return ShownCase(
        context=f"{found.query} ({situation})" if found.query else situation,  # cut from the end
        actions=_actions(found),
        outcome=found.outcome or "unknown",
        reward=found.reward,
        support=cluster.support,
        writers=cluster.writers,
        confirmed=cluster.confirmed,
        success=None if rate is None or ends is None else (rate, *ends),
        contrast=contrast and (contrast.outcome or "unknown", _actions(contrast)),
    )


def _actions(found: FoundEpisode) -> list[tuple[str, str]]:
    return [(call.tool, call.arguments) for call in found.calls]


_open: WeakSet[Memory] = WeakSet()


def _after_fork() -> None:
    """Start again: a forked process has no thread, and must not use its parent's connections.

    A thread of the parent may hold a lock.
    """
    for each in list(_open):
        each._begin()


os.register_at_fork(after_in_child=_after_fork)
