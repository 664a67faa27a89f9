"""`PastCases`: the finished runs of one workflow type, kept in this process.

They are read in the background, again and again, so that a guess never waits for the database.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, Self

from headstart.arguments.checks import identifier, number
from memory.cases.case import Case
from memory.cases.episode_case import case_of_episode
from memory.ranking.evidence import CallIndex
from memory.retrieval.client import Memory
from memory.retrieval.profile_limits import UserProfiles
from memory.retrieval.request import MOST
from memory.retrieval.result import FoundEpisode, Retrieval

REFRESH_S: Final = 60.0
"""Age of the cases in seconds at which they are read again."""
MAX_AGE_S: Final = 900.0
"""Age of the cases in seconds from which on they are no evidence any more."""

_LOG = logging.getLogger(__name__)


class EpisodeSource(Protocol):
    """A `Memory`, as far as it is used here."""

    def search(self, text: str = "", **fields: Any) -> Retrieval:
        """Return episodes, and what was not searched; see `Memory.search`."""
        ...

    def profiles(self) -> tuple[UserProfiles | None, str]:
        """Return what users have set, or None and why it cannot be read."""
        ...


class CaseSnapshot(NamedTuple):
    """Cases as they were read, oldest first, and their index by calls. Never changed.

    `degraded`: why the memory could not be read last, "" if it was; there may be older cases.
    """

    by_calls: CallIndex
    degraded: str = ""
    agents: Mapping[str, str] = MappingProxyType({})
    """The agents of cases that name one, by the key of the case."""
    profiles: UserProfiles = MappingProxyType({})
    """What users have set of the memory."""

    @property
    def cases(self) -> list[Case]:
        """The cases, oldest first."""
        return self.by_calls.cases


class PastCases:
    """The newest finished runs of one workflow type and tenant, of all users. Thread-safe.

    Nothing here raises for a service: while the memory is away, the cases that were read before
    serve until they are `max_age_s` old, and a snapshot says what is wrong.
    """

    def __init__(
        self,
        memory: EpisodeSource,
        workflow_type: str,
        *,
        most: int = MOST,
        refresh_s: float = REFRESH_S,
        max_age_s: float = MAX_AGE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin to read the cases; waits for nothing.

        Args:
            memory: Finds the episodes; its tenant is that of the runs.
            workflow_type: Of the runs.
            most: Most cases, 1 to 500.
            refresh_s: Age in seconds at which the cases are read again, when they are needed.
            max_age_s: Age in seconds from which on they are not used, at least `refresh_s`.
            clock: Monotonic, in seconds.

        Raises:
            InvalidArgument: Names the argument that cannot be used.
        """
        self._memory = memory
        self._workflow_type = identifier("workflow_type", workflow_type)
        self._most = int(number("most", most, 1, MOST, whole=True))
        self._refresh_s = number("refresh_s", refresh_s, 0.0, unit="seconds")
        self._max_age_s = number("max_age_s", max_age_s, self._refresh_s, unit="seconds")
        self._clock = clock
        self._close: Callable[[], None] = lambda: None
        self._lock = threading.Lock()
        self._snapshot = CaseSnapshot(CallIndex(), "the memory was not read yet")
        self._read_at = self._tried_at = float("-inf")
        self._reading: tuple[int, threading.Thread] | None = None
        self.snapshot()

    @classmethod
    def of_database(
        cls, dsn: str, workflow_type: str, *, tenant: str = "default", **more: Any
    ) -> Self:
        """Return the cases of a tenant in Postgres; `more` as in the constructor.

        Reading them is not logged as a retrieval, and needs no embedding model. `close` closes its
        connections.
        """
        memory = Memory(dsn, tenant=tenant, embedders=(), journal=False)
        cases = cls(memory, workflow_type, **more)
        cases._close = memory.close
        return cases

    def snapshot(self) -> CaseSnapshot:
        """Return the cases as they were read last, without waiting; reads them again if due."""
        now = self._clock()
        with self._lock:
            if now - self._tried_at >= self._refresh_s and not self._is_reading():
                self._tried_at = now
                self._start()
            if self._snapshot.cases and now - self._read_at > self._max_age_s:
                why = self._snapshot.degraded or f"the cases are over {self._max_age_s:g} s old"
                self._snapshot = CaseSnapshot(CallIndex(), why)
            return self._snapshot

    def refresh(self, timeout_s: float = 30.0) -> str:
        """Read the cases now, and wait for it; return what is wrong, "" for nothing.

        For the start of a process, and tests. A running agent does not need it.
        """
        until = time.monotonic() + timeout_s
        self._join(until)  # one under way may have asked before the last run was stored
        with self._lock:
            if not self._is_reading():
                self._tried_at = self._clock()
                self._start()
        self._join(until)
        with self._lock:
            late = "the memory has not answered yet" if self._is_reading() else ""
            return self._snapshot.degraded or late

    def _join(self, until: float) -> None:
        with self._lock:
            reading = self._reading if self._is_reading() else None
        if reading is not None:
            reading[1].join(max(0.0, until - time.monotonic()))

    def close(self) -> None:
        """Close the connections that `of_database` made."""
        self._close()

    def _is_reading(self) -> bool:
        """Return whether a thread of this process is at work; that of a parent is not."""
        reading = self._reading
        return reading is not None and reading[0] == os.getpid() and reading[1].is_alive()

    def _start(self) -> None:
        thread = threading.Thread(target=self._read, name="headstart-past-cases", daemon=True)
        self._reading = os.getpid(), thread
        try:
            thread.start()
        except RuntimeError:  # the interpreter ends
            self._reading = None

    def _read(self) -> None:
        try:
            found = self._memory.search(
                mode="exact", context={}, keys=(), workflow_type=self._workflow_type, k=self._most
            )
            why = "; ".join(found.degraded) if not found.episodes else ""
            by_calls = _indexed(found.episodes, self._snapshot.by_calls)
            profiles, unread = self._memory.profiles()
            why = why or unread
        except Exception as error:  # an error of ours or of another source: no evidence
            _LOG.warning("past runs cannot be read: %r", error)
            why, by_calls = f"past runs cannot be read: {error!r:.200}", CallIndex()
        with self._lock:
            if why:
                self._snapshot = self._snapshot._replace(degraded=why)
            else:
                agents = {str(each.id): each.agent_id for each in found.episodes if each.agent_id}
                self._snapshot = CaseSnapshot(by_calls, "", agents, profiles or {})
                self._read_at = self._clock()


def _indexed(episodes: Sequence[FoundEpisode], known: CallIndex) -> CallIndex:
    """Return the finished runs, oldest first; `known` itself if they are the same.

    Cases that are known are taken from it: to unpack their calls takes most of the time.
    """
    same = {(each.key, each.at, each.reward, each.support): each for each in known.cases}
    cases = []
    for each in sorted(episodes, key=lambda each: (each.ended, each.id)):
        if each.outcome is not None and each.tools:
            case = same.get((str(each.id), each.ended, each.reward, each.support))
            if case is None:
                case = case_of_episode(each, at=each.ended, support=each.support)
            cases.append(case)
    if len(cases) == len(known.cases) and all(map(is_, cases, known.cases)):
        return known
    found = CallIndex()
    for case in cases:
        found.add(case)
    return found
