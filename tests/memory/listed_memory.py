"""A memory that is a list, for tests of evidence without a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headstart.prediction.interface import PredictedCall
from memory.cases.case import Case
from memory.episodes.calls import pack_calls
from memory.episodes.canonical import canonical_json
from memory.episodes.record import MadeCall
from memory.retrieval.profile_limits import UserProfiles
from memory.retrieval.result import FoundEpisode, Retrieval
from memory.speculation.predictor import EvidenceRun
from memory.users.profile import MemoryProfile

AT = 1_750_000_000_000
DAY_MS = 86_400_000


class Stored:
    """A memory in a list; `why`: what is wrong with it."""

    def __init__(self, cases: Sequence[Case] = (), why: str = "") -> None:
        self.cases, self.why, self.asked = list(cases), why, 0
        self.set: dict[str, list[MemoryProfile]] = {}
        self.agents: dict[str, str] = {}

    def search(self, text: str = "", **fields: Any) -> Retrieval:
        self.asked += 1
        if self.why == "raise":
            raise RuntimeError("out of order")
        if self.why:
            return Retrieval("r", (), (self.why,))
        newest = sorted(self.cases, key=lambda each: -(each.at or 0))[: fields["k"]]
        return Retrieval(
            "r",
            tuple(episode(each)._replace(agent_id=self.agents.get(each.key)) for each in newest),
        )

    def profiles(self) -> tuple[UserProfiles | None, str]:
        return self.set, ""


def episode(case: Case, outcome: Any = "success") -> FoundEpisode:
    calls = tuple(MadeCall(c.tool, canonical_json(c.arguments), True) for c in case.calls)
    user = case.writer.removeprefix("user:") if case.writer.startswith("user:") else None
    return FoundEpisode(
        id=int(case.key), workflow_type=case.kind, workflow_id=f"w{case.key}", user_id=user,
        agent_id=None, session_id=None, started=case.at or 0, ended=case.at or 0, outcome=outcome,
        reward=case.reward, confidence=None, usefulness=0.0, duration_ms=None, query=case.query,
        context={}, packed_calls=pack_calls(calls), tools=list(case.tools), concepts=[], domains=[],
        agents_used=[], insights=[], response=None, query_hash=None,
    )  # fmt: skip


def played(run: EvidenceRun, case: Case) -> list[PredictedCall]:
    """Let a run make the calls of a case; return the guess before each call but the first."""
    found: list[PredictedCall] = []
    run.user(case.query)
    for call in case.calls:
        found += run.guess()
        run.calls([call])
        run.result(call.tool, "done")
    run.calls([])
    return found
