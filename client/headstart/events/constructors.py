"""One constructor for each kind of event: names its fields, says their units, checks at the call.

What belongs to the workflow (tenant, workflow type and id, user, session, context) comes from the
scope that `headstart.workflow` opened, where the call does not say. Nothing is sent here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal, TypedDict, Unpack

from headstart.arguments.checks import InvalidArgument, refuse_unknown
from headstart.arguments.names import refuse_fields
from headstart.events.schema import Event, InvalidEvent, Prediction, stamp
from headstart.events.validation import validate

Mode = Literal["speculative", "suggestion", "explicit"]
Outcome = Literal["success", "failure", "partial", "aborted"]


class Fields(dict[str, Any]):
    """The fields of one workflow, as its scope fills them in; `context` is one of them.

    `outer`: the scope around it. `ended`: it has been left.
    """

    outer: Mapping[str, Any] | None = None
    ended = False


scope: Final[ContextVar[Mapping[str, Any]]] = ContextVar("headstart_workflow", default={})  # noqa: B039
"""Fields of the workflow that this thread or task is in."""
_open: Final[set[int]] = set()
"""The scopes that are open in this process, in whatever thread."""
_IDENTITY: Final = ("tenant", "workflow_type", "workflow_id")
"""What says which run an event belongs to."""


def enter(fields: Fields) -> None:
    """Make a scope the current one."""
    fields.outer = scope.get()
    scope.set(fields)
    _open.add(id(fields))


def leave(fields: Fields) -> None:
    """End a scope, in whatever order scopes end: current is the innermost that is still open."""
    fields.ended = True
    _open.discard(id(fields))
    current = scope.get()
    while isinstance(current, Fields) and current.ended:
        current = current.outer or {}
    scope.set(current)


@contextmanager
def inside(fields: Fields) -> Iterator[None]:
    """Have constructors take these fields, whatever scope is current."""
    token = scope.set(fields)
    try:
        yield
    finally:
        scope.reset(token)


def in_scope(context: Mapping[str, object]) -> Mapping[str, object]:
    """Return a context with what it leaves out of the current scope; as it is for another run."""
    fields = scope.get()
    others = [name for name in _IDENTITY if context.get(name) not in (None, fields.get(name))]
    if not fields or others:
        return context
    own = {name: value for name, value in fields.items() if name != "context"}
    said = {n: value for n, value in context.items() if value is not None or n not in _IDENTITY}
    return {**fields.get("context", {}), **own, **said}


class Scoped(dict[str, Any]):
    """An event as a constructor made it, which knows what it has from the scope that was current.

    `given`: names of the fields that the call gave. `filled`, `filled_context`: those that came
    from the scope, or are defaults, with their values.
    """

    given: frozenset[str] = frozenset()
    filled: Mapping[str, Any] = {}
    filled_context: Mapping[str, Any] = {}


def within(event: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of an event as one of the run with these fields, wherever it was made.

    Raises `InvalidEvent` where the event itself names another run.
    """
    own = dict(event)
    given = set(own)
    filled_context: Mapping[str, Any] = {}
    if isinstance(event, Scoped):
        given, filled_context = set(event.given), event.filled_context
        own = _without(own, event.filled)
    for name in _IDENTITY:
        if own.get(name) is None:
            own[name] = fields[name]
        elif own[name] != fields[name]:
            raise InvalidEvent(
                name,
                f"is {own[name]!r:.64}, but this is run {fields['workflow_id']!r:.64} of "
                f"{fields['workflow_type']!r:.64}: leave it out, or use the emitter itself",
            )
    own |= {
        name: value
        for name, value in fields.items()
        if name != "context" and name not in own and name not in given
    }
    data = own.get("data")
    data = {} if data is None else data
    context = data.get("context", {}) if isinstance(data, Mapping) else None
    if isinstance(context, Mapping):  # else it is refused, as any other event's
        merged = {**fields.get("context", {}), **_without(context, filled_context)}
        data = _without(data, {"context": context}) | ({"context": merged} if merged else {})
        if data:
            own["data"] = data
    return own


def _without(fields: Mapping[str, Any], filled: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields but those that are still as they were filled in."""
    return {
        name: value for name, value in fields.items() if name not in filled or value != filled[name]
    }


class Common(TypedDict, total=False):
    """Fields that every kind takes. Identifiers have 1 to 256 characters.

    `timestamp`: Unix ms, default now. `id`: UUID, default a new UUIDv7. `context`: `domain`,
    `complexity` and any other key; levels of thresholds are taken from it. A key that is a field,
    or another spelling of one or of a level, is an `InvalidArgument`. `data`: any more content of
    the event, which the named fields are merged into.
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
    traceparent: str
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

    `guess`: the tool. `confidence`: in [0, 1]. Needs `task_id`, by which the completion finds it:
    of several guesses about one step each has a `task_id` of its own.
    `not_startable`: why no confidence was enough to start it (`choice.not_startable` of a
    speculator); backtests count such guesses apart.
    Raises `InvalidEvent` naming the field.
    """
    if guess is None:
        raise InvalidEvent("data.prediction.tool_id", "is missing: `guess` names the guessed tool")
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


def _merged(own: object, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return content of the caller's own with the named fields, those that are given, put in."""
    if not isinstance(own, Mapping):
        raise InvalidEvent("data", f"must be an object, not {own!r:.64}")
    content = dict(own)
    for name, value in named.items():
        before = content.get(name)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            content[name] = {**before, **_present(value)}
        elif before is None or (value is not None and not isinstance(value, Mapping)):
            content[name] = value
    return content


def _event(kind: str, common: Common, data: Mapping[str, Any], **fields: Any) -> Event:
    _refuse_unknown(kind, common)
    current = scope.get()
    filled = {"tenant": "default"} | {
        name: value for name, value in current.items() if name not in ("context", *common)
    }
    given: dict[str, Any] = {**filled, **common}
    content = _merged(given.pop("data", None) or {}, data)
    own_context = given.pop("context", None) or {}
    if not isinstance(own_context, Mapping):
        raise InvalidEvent("data.context", f"must be an object, not {own_context!r:.64}")
    if own_context:
        refuse_fields(kind, own_context, _COMMON | fields.keys())
    filled_context = _without_names(current.get("context", {}), own_context)
    if context := {**filled_context, **own_context}:
        content["context"] = context
    event = Scoped(stamp({"event_type": kind, **_present(given), **_present(fields)}))
    event.given, event.filled = frozenset(common), _without_names(filled, common)
    event.filled_context = filled_context
    if content := _present(content):
        event["data"] = content
    _check(event, current)
    return event  # type: ignore[return-value]


_COMMON: Final = frozenset(Common.__annotations__)


def _refuse_unknown(kind: str, common: Mapping[str, Any]) -> None:
    """Raise `TypeError` naming a keyword that the constructor does not have."""
    if not _COMMON.issuperset(common):
        code = globals()[kind].__code__
        own = code.co_varnames[: code.co_kwonlyargcount]
        for name in common if kind == "task_complete" else ():
            field = "tool_id" if name == "guess" else name
            if name not in _COMMON and field in Prediction.__annotations__:
                raise InvalidArgument(
                    f"{kind}() has no argument {name!r}: it is a field of the prediction, given as "
                    f"data={{'prediction': {{{field!r}: ...}}}}"
                )
        refuse_unknown(kind, common, {*_COMMON, *own})


def _check(event: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Check an event. One that is made outside of scopes may be filled in by `run.emit`."""
    checked = event
    if not current and _open:
        missing = {name: "-" for name in _IDENTITY if event.get(name) is None}
        checked = {**event, **missing}
    validate(checked, now_ms=time.time_ns() // 1_000_000)


def _without_names(fields: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is not None, without objects that would be empty."""
    kept = {
        name: _present(value) if name in ("result", "prediction", "decision") else value
        for name, value in fields.items()
        if value is not None
    }
    return {name: value for name, value in kept.items() if value != {}}
