"""`Episode`: what the memory keeps of one workflow run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Outcome = Literal["success", "failure", "partial", "aborted"]


class MadeCall(NamedTuple):
    """A tool call of a run. `success`: None if the run does not say."""

    tool: str
    arguments: str
    """A JSON object in canonical form (`memory.episodes.canonical`); equal texts, equal calls."""
    success: bool | None = None


class Episode(NamedTuple):
    """One workflow run, a pure function of its stored events. Times are Unix ms.

    Hashes are signed 64-bit integers, as Postgres stores them (`memory.episodes.hashes`).
    """

    id: int
    """Hash of tenant, workflow type and workflow id."""
    tenant: str
    workflow_type: str
    workflow_id: str
    user_id: str | None
    agent_id: str | None
    session_id: str | None
    started: int
    ended: int
    """Times of the first and of the last event."""
    outcome: Outcome | None
    """None: the run has not ended, or does not say."""
    reward: float | None
    """0 to 1: by the outcome (1, .5, 0), moved by the user's feedback; None without both."""
    confidence: float | None
    """The mean of what the run's predictions, or its end, said."""
    duration_ms: float | None
    cost_ms: float | None
    """What wrong guesses wasted, ms of tool time; None if nothing was guessed."""
    query: str | None
    """The first 8,000 characters."""
    query_hash: int | None
    """Of the whole folded query."""
    context: Mapping[str, Any]
    context_hash: int
    """Of workflow type, domain and complexity."""
    first_call: int | None
    """Of the first call, name and arguments."""
    calls: tuple[MadeCall, ...]
    """In order."""
    concepts: tuple[str, ...]
    domains: tuple[str, ...]
    agents_used: tuple[str, ...]
    insights: tuple[str, ...]
    reference_ids: tuple[int, ...]
    """Ids of the episodes that were retrieved for this run."""
    response: str | None
    """The last one; None also if it is longer than what is kept, since a cut answer is none."""
    events: int
    """Number of events that it was made of."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Tenant, workflow id and workflow type, by which it is stored."""
        return self.tenant, self.workflow_id, self.workflow_type

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the called tools, in order."""
        return tuple(call.tool for call in self.calls)

    @property
    def writer(self) -> str:
        """Who wrote it, for "one vote per writer": user, else agent, else session, else the run."""
        return writer_of(self.user_id, self.agent_id, self.session_id, self.workflow_id)


def writer_of(
    user_id: str | None, agent_id: str | None, session_id: str | None = None, run: str = ""
) -> str:
    """Return the writer of a run by what it names: user, else agent, else session, else itself."""
    for kind, name in (("user", user_id), ("agent", agent_id), ("session", session_id)):
        if name:
            return f"{kind}:{name}"
    return f"run:{run}"
