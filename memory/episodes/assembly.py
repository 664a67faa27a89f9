"""Assembles one episode from the events of a run: a pure function, whatever their order.

Where a field of the episode comes from: docs/explanation/memory.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from memory.embedding.interface import MAX_CHARACTERS
from memory.episodes.calls import MAX_CALLS, call_of
from memory.episodes.canonical import canonical_json, clean_text, cleaned
from memory.episodes.corrections import corrections_of, last_of_run, owner_of
from memory.episodes.hashes import (
    CONTEXT_KEYS,
    context_hash,
    episode_id,
    first_call_hash,
    id_of_text,
    query_hash,
)
from memory.episodes.record import Episode, MadeCall
from memory.episodes.reward import Told, outcome_of, reward_of
from memory.episodes.run_event import RunEvent, in_order, within_bounds

MAX_QUERY: Final = MAX_CHARACTERS
"""Characters of a query that are kept, embedded and searched by words."""
MAX_RESPONSE: Final = 65_536
"""Longest response that is kept."""
MAX_CONTEXT_KEYS: Final = 256
MAX_CONTEXT: Final = 8_192
"""Characters of the context as JSON; keys beyond are left out, in their order."""
MAX_NAMES: Final = 100
"""Concepts, domains, agents and insights of each kind."""
_NAME: Final = 256
_INSIGHT: Final = 1_000


def assemble(
    tenant: str, workflow_type: str, workflow_id: str, events: Iterable[RunEvent]
) -> Episode:
    """Return the episode of one run. Raises `ValueError` without events.

    The same events give the same episode in any order, and twice the same event counts once.
    """
    ordered = in_order(events)
    if not ordered:
        raise ValueError("an episode needs at least one event")
    told = [(event, event.content) for event in within_bounds(ordered)]
    calls = _calls(told)
    user_id = owner_of(told)
    corrected = corrections_of(told, user_id)
    outcome = corrected.get("outcome") or outcome_of(told)
    query = _corrected_text(corrected, "query", _query(told))
    context = _context(told)
    response = _corrected_text(corrected, "response", _last_text(told, "response"))
    first, last = ordered[0], ordered[-1]
    return Episode(
        id=episode_id(tenant, workflow_type, workflow_id),
        tenant=tenant,
        workflow_type=workflow_type,
        workflow_id=workflow_id,
        user_id=user_id,
        agent_id=next((event.agent_id for event in ordered if event.agent_id), None),
        session_id=next((event.session_id for event in ordered if event.session_id), None),
        started=first.timestamp,
        ended=last.timestamp,
        outcome=outcome,
        reward=reward_of(outcome, told),
        confidence=_confidence(told),
        duration_ms=_duration(told, last_of_run(told).timestamp - first.timestamp),
        cost_ms=_cost(told),
        query=query[:MAX_QUERY] if query else None,
        query_hash=query_hash(query) if query else None,
        context=context,
        context_hash=context_hash(workflow_type, context),
        first_call=first_call_hash(*calls[0][:2]) if calls else None,
        calls=calls,
        concepts=_corrected_names(corrected, "concepts", told),
        domains=_corrected_names(corrected, "domains", told) or _own_domain(context),
        agents_used=_agents(told),
        insights=_corrected_names(corrected, "insights", told, _INSIGHT),
        reference_ids=_references(told),
        response=response if response and len(response) <= MAX_RESPONSE else None,
        events=len(ordered),
    )


def _calls(told: Told) -> tuple[MadeCall, ...]:
    calls: list[MadeCall] = []
    for event, content in told:
        call = call_of(event, content)
        if call is not None:
            calls.append(call)
            if len(calls) == MAX_CALLS:
                break
    return tuple(calls)


def _query(told: Told) -> str | None:
    """Return the query that the end of the run names, else the first that an event names."""
    first = None
    for event, content in told:
        said = content.get("query")
        if isinstance(said, str) and said and not said.isspace():
            if event.event_type == "workflow_complete":
                return clean_text(said)
            first = first or said
    return clean_text(first) if first else None


def _last_text(told: Told, key: str) -> str | None:
    """Return the text of the run's end, else the last one."""
    found = [
        (event.event_type == "workflow_complete", place, content[key])
        for place, (event, content) in enumerate(told)
        if isinstance(content.get(key), str)
    ]
    return clean_text(max(found)[2]) if found else None


def _corrected_text(corrected: Mapping[str, Any], key: str, otherwise: str | None) -> str | None:
    if key not in corrected:
        return otherwise
    said = corrected[key]
    return None if said is None else clean_text(said)


def _corrected_names(
    corrected: Mapping[str, Any], key: str, told: Told, longest: int = _NAME
) -> tuple[str, ...]:
    if key not in corrected:
        return _names(told, key, longest)
    return tuple(dict.fromkeys(clean_text(each[:longest]) for each in corrected[key][:MAX_NAMES]))


def _context(told: Told) -> dict[str, Any]:
    """Return the keys of all contexts, each with its first value: as it was when the run began."""
    merged: dict[str, Any] = {}
    for _, content in told:
        own = content.get("context")
        if isinstance(own, Mapping):
            if merged and own.keys() <= merged.keys():
                continue
            for key, value in own.items():
                merged.setdefault(key, value)
    text = canonical_json(merged, MAX_CONTEXT)
    if len(merged) <= MAX_CONTEXT_KEYS and not text.startswith('{"$cut":'):
        return cleaned(merged)  # type: ignore[no-any-return]
    return dict(_fitting(merged))


def _fitting(merged: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a large context that are kept: those of its hash, then in their order."""
    left = MAX_CONTEXT
    first = [key for key in CONTEXT_KEYS if key in merged]
    for key in [*first, *sorted(merged.keys() - set(first))][:MAX_CONTEXT_KEYS]:
        value = cleaned(merged[key])
        size = len(canonical_json([key, value], MAX_CONTEXT))
        if len(key) <= _NAME and size <= left:
            left -= size
            yield clean_text(key), value


def _confidence(told: Told) -> float | None:
    """Return what the end of the run says, else the mean over its guesses."""
    for event, _ in reversed(told):
        if event.event_type == "workflow_complete" and event.confidence is not None:
            return float(event.confidence)
    said = [event.confidence for event, _ in told if event.confidence is not None]
    return math.fsum(said) / len(said) if said else None


def _duration(told: Told, otherwise: float) -> float:
    for event, content in reversed(told):
        if event.event_type == "workflow_complete":
            took = _number(content, "execution_time_ms")
            if took is not None:
                return took
    return float(otherwise)


def _cost(told: Told) -> float | None:
    """Return the sum of what wrong guesses wasted that were started; None without guesses."""
    guesses: dict[str | None, Mapping[str, Any]] = {}
    wasted, guessed = [], False
    for event, content in told:
        prediction = content.get("prediction")
        prediction = prediction if isinstance(prediction, Mapping) else {}
        if event.event_type == "speculation_start":
            guessed = True
            guesses[event.task_id] = prediction
        elif event.event_type == "task_complete":
            start = guesses.pop(event.task_id, {})
            guessed = guessed or bool(prediction)
            if _is_wrong(event, start, prediction) and (
                prediction.get("speculated", start.get("speculated")) is True
            ):
                wasted.append(_number(content, "cost_ms") or 0.0)
    return math.fsum(wasted) if guessed else None


def _is_wrong(event: RunEvent, start: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    right = end.get("was_correct")
    if isinstance(right, bool):
        return not right
    guess = end.get("tool_id") or start.get("tool_id")
    return guess is not None and event.tool_id is not None and guess != event.tool_id


def _number(content: Mapping[str, Any], key: str) -> float | None:
    result = content.get("result")
    value = result.get(key) if isinstance(result, Mapping) else None
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e30:
        return float(value)
    return None


def _names(told: Told, key: str, longest: int = _NAME) -> tuple[str, ...]:
    """Return the texts of a list of all events, each once, in the order of appearance."""
    found: dict[str, None] = {}
    for _, content in told:
        said = content.get(key)
        if isinstance(said, list):
            for each in said:
                if isinstance(each, str) and each and len(found) < MAX_NAMES:
                    found[clean_text(each[:longest])] = None
    return tuple(found)


def _agents(told: Told) -> tuple[str, ...]:
    found = dict.fromkeys(event.agent_id for event, _ in told if event.agent_id)
    return tuple(dict.fromkeys([*found, *_names(told, "agents_used")]))[:MAX_NAMES]


def _own_domain(context: Mapping[str, Any]) -> tuple[str, ...]:
    domain = context.get("domain")
    return (domain[:_NAME],) if isinstance(domain, str) and domain else ()


def _references(told: Told) -> tuple[int, ...]:
    """Return the ids in `data.memory.episodes`: numbers, or texts of them."""
    found: dict[int, None] = {}
    for _, content in told:
        memory = content.get("memory")
        ids = memory.get("episodes") if isinstance(memory, Mapping) else None
        for each in ids if isinstance(ids, list) else ():
            if (number := _id(each)) is not None:
                found[number] = None
    return tuple(found)[:MAX_NAMES]


def _id(value: object) -> int | None:
    if isinstance(value, str):
        return id_of_text(value)
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    return None
