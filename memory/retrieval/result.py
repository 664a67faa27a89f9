"""`Retrieval`: what a request found, and what was missing while it was answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from memory.episodes.calls import unpack_calls
from memory.episodes.hashes import id_text
from memory.episodes.record import MadeCall, Outcome, writer_of


class FoundEpisode(NamedTuple):
    """An episode that was found. Times are Unix ms; see `memory.episodes.record.Episode`."""

    id: int
    workflow_type: str
    workflow_id: str
    user_id: str | None
    agent_id: str | None
    session_id: str | None
    started: int
    ended: int
    outcome: Outcome | None
    reward: float | None
    confidence: float | None
    usefulness: float
    duration_ms: float | None
    query: str | None
    context: Mapping[str, Any]
    packed_calls: bytes | None
    tools: list[str]
    concepts: list[str]
    domains: list[str]
    agents_used: list[str]
    insights: list[str]
    """Those of all runs that it stands for, the most frequent first, at most 20."""
    response: str | None
    query_hash: int | None
    support: int = 1
    """Runs that it stands for: itself, and equal ones of the same writer that were merged."""
    insight_runs: Sequence[int] = ()
    """The number of these runs that gave each insight."""
    score: float = 0.0
    """By which the results are sorted; its scale depends on the mode."""
    similarity: float | None = None
    """Cosine of the two texts' vectors; None if they were not compared."""

    @property
    def writer(self) -> str:
        """What counts as one voice, as `memory.episodes.record.Episode.writer`."""
        return writer_of(self.user_id, self.agent_id, self.session_id, self.workflow_id)

    @property
    def calls(self) -> tuple[MadeCall, ...]:
        """The tool calls in order; without arguments if they cannot be unpacked."""
        try:
            return unpack_calls(self.packed_calls)
        except ValueError:
            return tuple(MadeCall(tool, "{}") for tool in self.tools)

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object, calls unpacked; the id as `id_text` writes it."""
        fields = self._asdict()
        del fields["packed_calls"], fields["query_hash"]
        return fields | {"id": id_text(self.id), "calls": [call._asdict() for call in self.calls]}


class Retrieval(NamedTuple):
    """The answer to a request."""

    id: str
    """A UUID, under which retrieval, use, judgement and retention are logged."""
    episodes: tuple[FoundEpisode, ...]
    """Best first: as many as match, at most k."""
    degraded: tuple[str, ...] = ()
    """What was not searched, or not logged, and why; empty if everything was."""
    writer: str = ""
    """Of the run that asks, as `memory.retrieval.journal.asking_writer` names it: logged with its
    judgements. "": one for all runs that name neither user nor agent."""

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "id": self.id,
            "degraded": list(self.degraded),
            "episodes": [each.as_json() for each in self.episodes],
        }
