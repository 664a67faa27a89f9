"""Makes the case of an episode."""

from __future__ import annotations

import orjson

from headstart.prediction.interface import ToolCall
from memory.cases.case import Case
from memory.episodes.record import Episode


def case_of_episode(episode: Episode) -> Case | None:
    """Return the case of an episode; None for one without a call.

    Episodes name no task: those of an equal folded query are of one task, others are tasks of
    their own. The writer is the user, else the agent, the session or the run.
    """
    if not episode.calls:
        return None
    task = "" if episode.query_hash is None else f"query:{episode.query_hash}"
    calls = (ToolCall(call.tool, orjson.loads(call.arguments)) for call in episode.calls)
    return Case(
        key=str(episode.id),
        writer=episode.writer,
        task=task,
        kind=episode.workflow_type,
        query=episode.query or "",
        calls=tuple(calls),
        reward=episode.reward,
        at=episode.started,
    )
