"""Makes the case of an episode, whether it was assembled or found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import orjson

from headstart.prediction.interface import ToolCall
from memory.cases.case import Case
from memory.episodes.record import MadeCall


class CasedEpisode(Protocol):
    """What a case needs of an episode; both `Episode` and `FoundEpisode` have it."""

    @property
    def id(self) -> int:
        """Its id."""

    @property
    def workflow_type(self) -> str:
        """Kind of the case."""

    @property
    def writer(self) -> str:
        """User, else agent, session or run."""

    @property
    def query(self) -> str | None:
        """What was asked."""

    @property
    def query_hash(self) -> int | None:
        """Of the folded query."""

    @property
    def calls(self) -> tuple[MadeCall, ...]:
        """In order."""

    @property
    def reward(self) -> float | None:
        """0 to 1, None for unknown."""


def case_of_episode(
    episode: CasedEpisode,
    *,
    at: int,
    calls: Iterable[ToolCall] | None = None,
    support: int = 1,
) -> Case:
    """Return the case of an episode; its key is the id in decimal.

    Episodes name no task: those of an equal folded query are of one task, others are tasks of
    their own. `at`: Unix ms. `calls`: in place of the episode's, where arguments do not matter:
    unpacking them takes most of the time. `support`: the number of runs that it stands for.
    """
    if calls is None:
        calls = (ToolCall(call.tool, orjson.loads(call.arguments)) for call in episode.calls)
    return Case(
        key=str(episode.id),
        writer=episode.writer,
        task="" if episode.query_hash is None else f"query:{episode.query_hash}",
        kind=episode.workflow_type,
        query=episode.query or "",
        calls=tuple(calls),
        reward=episode.reward,
        at=at,
        support=support,
    )
