"""One constructor for each kind of event: names its fields, says their units, checks at the call.

What belongs to the workflow (tenant, workflow type and id, user, session, context) comes from the
scope that `headstart.workflow` opened, where the call does not say. Nothing is sent here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final, Literal, TypedDict, Unpack

from headstart.events import Event, stamp
from headstart.options import known_only
from headstart.validation import validate

Mode = Literal["speculative", "suggestion", "explicit"]
Outcome = Literal["success", "failure", "partial", "aborted"]

scope: Final[ContextVar[Mapping[str, Any]]] = ContextVar("headstart_workflow", default={})  # noqa: B039
"""Fields of the workflow that this thread or task is in."""


class Common(TypedDict, total=False):
    """Fields that every kind takes. Identifiers have 1 to 256 characters.

    `timestamp`: Unix ms, default now. `id`: UUID, default a new UUIDv7. `context`: `domain`,
    `complexity` and any other key; levels of thresholds are taken from it. `data`: any more
    content of the event, which the named fields are merged into.
    """

    id: str
    tenant: str
    workflow_type: str
    workflow_id: str
    task_id: str
    user_id: str
    agent_id: str
    session_id: str
    timestamp: int
    context: Mapping[str, Any]
    data: Mapping[str, Any]


def speculation_start(
    *,
    guess: str,
    confidence: float,
    speculated: bool,
    mode: Mode = "speculative",
    reasoning: str | None = None,
    not_startable: str | None = None,
    **common: Unpack[Common],
) -> Event:
    """A guessed next tool call. Log it also where you decline (`speculated=False`).

    `guess`: the tool. `confidence`: in [0, 1]. Needs `task_id`, by which the completion finds it.
    `not_startable`: why no confidence was enough to start it (`choice.not_startable` of a
    speculator); backtests count such guesses apart.
    Raises `InvalidEvent` naming the field.
    """
    prediction = {
        "tool_id": guess, "mode": mode, "speculated": speculated, "reasoning": reasoning,
        "not_startable": not_startable,
    }  # fmt: skip
    return _event("speculation_start", common, {"prediction": prediction}, confidence=confidence)


def task_complete(
    *,
    tool_id: str | None = None,
    success: bool | None = None,
    confidence: float | None = None,
    was_correct: bool | None = None,
    output: Any = None,
    execution_time_ms: float | None = None,
    gain_ms: float | None = None,
    cost_ms: float | None = None,
    **common: Unpack[Common],
) -> Event:
    """A tool call that has ended: `tool_id` is the tool that was really called.

    `gain_ms`: latency that a right guess saves; `cost_ms`: compute that a wrong one wastes; both,
    and `execution_time_ms`, in milliseconds, at least 0. With `confidence` (in [0, 1]) and
    `was_correct` it counts by itself, else with its `speculation_start` of the same `task_id`.
    A right guess that was started and failed has saved nothing: give `was_correct=False`.
    Raises `InvalidEvent` naming the field.
    """
    result = {
        "output": output, "execution_time_ms": execution_time_ms, "gain_ms": gain_ms,
        "cost_ms": cost_ms,
    }  # fmt: skip
    data = {"result": result, "prediction": {"was_correct": was_correct}}
    return _event(
        "task_complete", common, data, tool_id=tool_id, success=success, confidence=confidence
    )


def ail_decision(
    *,
    type: str,
    action: str,
    accepted: bool | None = None,
    reasoning: str | None = None,
    confidence: float | None = None,
    **common: Unpack[Common],
) -> Event:
    """A decision of an agent in the loop. `confidence` in [0, 1].

    Raises `InvalidEvent` naming the field.
    """
    decision = {"type": type, "action": action, "accepted": accepted, "reasoning": reasoning}
    return _event("ail_decision", common, {"decision": decision}, confidence=confidence)


def hil_decision(
    *,
    type: str,
    action: str,
    accepted: bool,
    reasoning: str | None = None,
    **common: Unpack[Common],
) -> Event:
    """A decision of a human in the loop. Raises `InvalidEvent` naming the field."""
    decision = {"type": type, "action": action, "accepted": accepted, "reasoning": reasoning}
    return _event("hil_decision", common, {"decision": decision})


def workflow_complete(
    *,
    outcome: Outcome,
    query: str | None = None,
    response: str | None = None,
    agents_used: list[str] | None = None,
    insights: list[str] | None = None,
    execution_time_ms: float | None = None,
    **common: Unpack[Common],
) -> Event:
    """The end of a workflow. `execution_time_ms`: in milliseconds, at least 0.

    `success` is true where the outcome is. Raises `InvalidEvent` naming the field.
    """
    data = {
        "outcome": outcome, "query": query, "response": response, "agents_used": agents_used,
        "insights": insights, "result": {"execution_time_ms": execution_time_ms},
    }  # fmt: skip
    return _event("workflow_complete", common, data, success=outcome == "success")


def user_feedback(
    *,
    target_id: str,
    accepted: bool | None = None,
    reward: float | None = None,
    source: Literal["user", "system"] = "user",
    confidence: float | None = None,
    **common: Unpack[Common],
) -> Event:
    """What a user made of it. `target_id`: id of the event that is meant. `reward`: any number.

    With `accepted`, and the `confidence` (in [0, 1]) of the prediction that is meant, it is one
    more outcome of its context: name the same user and context as the prediction.

    Raises `InvalidEvent` naming the field.
    """
    data = {"target_id": target_id, "accepted": accepted, "reward": reward, "source": source}
    return _event("user_feedback", common, data, confidence=confidence)


_COMMON: Final = frozenset(Common.__annotations__)


def _event(kind: str, common: Common, data: Mapping[str, Any], **fields: Any) -> Event:
    if not _COMMON.issuperset(common):
        known_only(common, _COMMON, kind)
    given: dict[str, Any] = {**scope.get(), **common}
    content = {**given.pop("data", {}), **data}
    if context := {**scope.get().get("context", {}), **(common.get("context") or {})}:
        content["context"] = context
    given.pop("context", None)
    event = stamp({"event_type": kind, **_present(given), **_present(fields)})
    if content := _present(content):
        event["data"] = content
    validate(event, now_ms=time.time_ns() // 1_000_000)
    return event  # type: ignore[return-value]


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is not None, without objects that would be empty."""
    kept = {
        name: _present(value) if name in ("result", "prediction", "decision") else value
        for name, value in fields.items()
        if value is not None
    }
    return {name: value for name, value in kept.items() if value != {}}
