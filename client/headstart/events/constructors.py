"""A constructor for each type of event, which refuses unknown fields. Nothing is sent here.

Fields of the workflow (tenant, workflow type and id, user, session, context) that are not given
come from the scope that `headstart.workflow` opened.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, Final, Literal, TypedDict, Unpack

from headstart.arguments.checks import InvalidArgument, refuse_unknown
from headstart.arguments.names import refuse_fields
from headstart.events.schema import Event, InvalidEvent, Prediction, stamp
from headstart.events.validation import validate

Mode = Literal["speculative", "suggestion", "explicit"]
Outcome = Literal["success", "failure", "partial", "aborted"]


class Fields(dict[str, Any]):
    """The fields that the scope of a workflow fills in, also its `context`.

    `outer`: the enclosing scope. `ended`: the scope was left.
    """

    outer: Mapping[str, Any] | None = None
    ended = False
    some_ended: ClassVar = False
    """Whether any scope of this process was left."""


scope: Final[ContextVar[Mapping[str, Any]]] = ContextVar("headstart_workflow", default={})  # noqa: B039
"""Fields of the current workflow of this thread or task."""
_open: Final[set[int]] = set()
"""Ids of the scopes that are open in any thread of this process."""
_IDENTITY: Final = ("tenant", "workflow_type", "workflow_id")
"""Fields that identify the run of an event."""


def enter(fields: Fields) -> None:
    """Make a scope current."""
    fields.outer = scope.get()
    scope.set(fields)
    _open.add(id(fields))


def leave(fields: Fields) -> None:
    """End a scope, in any order; the innermost open one becomes current."""
    fields.ended = Fields.some_ended = True
    _open.discard(id(fields))
    current = scope.get()
    while isinstance(current, Fields) and current.ended:
        current = current.outer or {}
    scope.set(current)


@contextmanager
def inside(fields: Fields) -> Iterator[None]:
    """Have constructors use these fields, whatever scope is current."""
    token = scope.set(fields)
    try:
        yield
    finally:
        scope.reset(token)


def in_scope(context: Mapping[str, object]) -> Mapping[str, object]:
    """Return a context completed from the current scope; unchanged if it names another run."""
    fields = scope.get()
    others = [name for name in _IDENTITY if context.get(name) not in (None, fields.get(name))]
    if not fields or others:
        return context
    own = {name: value for name, value in fields.items() if name != "context"}
    given = {n: value for n, value in context.items() if value is not None or n not in _IDENTITY}
    return {**fields.get("context", {}), **own, **given}


class Scoped(dict[str, Any]):
    """An event of a constructor, which records the fields that came from the current scope.

    `given`: names of the fields given in the call. `filled`, `filled_context`: fields and context
    keys that came from the scope or are defaults, with their values.
    """

    given: frozenset[str] = frozenset()
    filled: Mapping[str, Any] = {}
    filled_context: Mapping[str, Any] = {}


def within(event: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of an event with the fields of a run, wherever the event was made.

    Raises `InvalidEvent` if the event itself names another run.
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
    if isinstance(context, Mapping):  # else `emit` refuses it
        merged = {**fields.get("context", {}), **_without(context, filled_context)}
        data = _without(data, {"context": context}) | ({"context": merged} if merged else {})
        if data:
            own["data"] = data
    return own


def _without(fields: Mapping[str, Any], filled: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields without those that still have their filled-in values."""
    return {
        name: value for name, value in fields.items() if name not in filled or value != filled[name]
    }


class Common(TypedDict, total=False):
    """Fields of every type of event. Identifiers have 1 to 256 characters.

    `timestamp`: Unix ms, default now. `id`: UUID, default a new UUIDv7. `context`: `domain`,
    `complexity` and any other key; levels of thresholds are read from it. A key that is a field, or
    a misspelling of a field or level, raises `InvalidArgument`. `data`: further content of the
    event; the named fields are merged into it.
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
    calibrated: bool | None = None,
    evidence: Mapping[str, Any] | None = None,
    **common: Unpack[Common],
) -> Event:
    """Return the event of a guessed next tool call; log declined ones too (`speculated=False`).

    Args:
        guess: The guessed tool.
        confidence: In [0, 1].
        speculated: Whether the call was started early.
        mode: How the guess was used.
        reasoning: Text for people.
        not_startable: Why no confidence sufficed to start it (`SpeculationDecision.not_startable`);
            backtests count such guesses separately.
        calibrated: Whether the confidence was believed to be calibrated (`Threshold.for_guess`).
        evidence: The basis of the confidence, such as `tries`, the number of observations.
        **common: `task_id` is required, by which the completion is joined: each of several guesses
            about one step has its own. See `Common`.

    Raises:
        InvalidEvent: Names the invalid field.
    """
    if guess is None:
        raise InvalidEvent("data.prediction.tool_id", "is missing: `guess` names the guessed tool")
    prediction = {
        "tool_id": guess, "mode": mode, "speculated": speculated, "reasoning": reasoning,
        "not_startable": not_startable, "calibrated": calibrated, "evidence": evidence,
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
    """Return the event of a completed tool call.

    With `confidence` and `was_correct` it is an outcome on its own, else together with the
    `speculation_start` of the same `task_id`.

    Args:
        tool_id: The tool that was really called.
        success: Whether the call succeeded.
        confidence: Of the guess, in [0, 1].
        was_correct: Whether the guess was right; False if the started call failed.
        output: The result, any JSON.
        execution_time_ms: Duration in ms, at least 0.
        gain_ms: Latency in ms that a right guess saves, at least 0.
        cost_ms: Compute in ms that a wrong guess wastes, at least 0.
        **common: See `Common`.

    Raises:
        InvalidEvent: Names the invalid field.
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
    """Return the event of a decision by an agent in the loop. `confidence`: in [0, 1].

    Raises `InvalidEvent` naming the invalid field.
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
    """Return the event of a decision by a human. Raises `InvalidEvent` naming the invalid field."""
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
    """Return the event of a workflow's end. `execution_time_ms`: in ms, at least 0.

    `success` is set if the outcome is "success". Raises `InvalidEvent` naming the invalid field.
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
    """Return the event of a user's feedback on another event.

    `target_id`: id of that event. `reward`: any number. With `accepted`, and the `confidence` (in
    [0, 1]) of the prediction, it teaches its context like an outcome, but is counted as feedback;
    give the same user and context as the prediction. Raises `InvalidEvent` naming the wrong field.
    """
    data = {"target_id": target_id, "accepted": accepted, "reward": reward, "source": source}
    return _event("user_feedback", common, data, confidence=confidence)


def _merged(own: object, named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the caller's `data` merged with the named fields that are not None."""
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
    """Raise `InvalidArgument` naming a keyword that the constructor does not have."""
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
    """Validate an event. `run.emit` may fill in one made outside of any scope."""
    checked = event
    if not current and _open:
        missing = {name: "-" for name in _IDENTITY if event.get(name) is None}
        checked = {**event, **missing}
    try:
        validate(checked, now_ms=time.time_ns() // 1_000_000)
    except InvalidEvent as error:
        missing_id = error.field in _IDENTITY and error.reason == "is missing"
        if not missing_id or not Fields.some_ended:
            raise
        raise InvalidEvent(error.field, f"{error.reason}: {_ENDED}") from None


_ENDED: Final = (
    "the run has ended; make its events in the block of headstart.workflow(), or name tenant, "
    "workflow_type and workflow_id"
)


def _without_names(fields: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that are not None, without objects that would be empty."""
    kept: dict[str, Any] = {}
    for name, value in fields.items():
        nested = name in ("result", "prediction", "decision") and isinstance(value, Mapping)
        kept[name] = _present(value) if nested else value
    return {name: value for name, value in kept.items() if value not in (None, {})}
