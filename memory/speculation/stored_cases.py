"""Cases of episodes that were found, and calls in the form in which episodes keep them. Pure."""

from __future__ import annotations

import orjson

from headstart.prediction.interface import ToolCall
from headstart.speculation.logged_arguments import logged_arguments
from memory.cases.case import Case
from memory.episodes.calls import arguments_text
from memory.retrieval.result import FoundEpisode


def case_of(found: FoundEpisode) -> Case:
    """Return an episode as a case; its key is the id in decimal."""
    calls = tuple(ToolCall(each.tool, orjson.loads(each.arguments)) for each in found.calls)
    return Case(
        key=str(found.id), writer=found.writer, task="", kind=found.workflow_type,
        query=found.query or "", calls=calls, reward=found.reward, at=found.ended,
        support=found.support,
    )  # fmt: skip


def stored_call(call: ToolCall) -> ToolCall:
    """Return a call as an episode has it that was made from the events of our client."""
    text = arguments_text(logged_arguments(call.arguments))
    return ToolCall(call.tool, orjson.loads(text))
