"""An episode is a pure function of the run's events: their order and repetition change nothing."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.episodes.assembly import MAX_CONTEXT, MAX_QUERY, assemble
from memory.episodes.calls import MAX_CALLS, arguments_text, pack_calls, unpack_calls
from memory.episodes.hashes import context_hash, episode_id, query_hash
from memory.episodes.record import Episode, MadeCall
from memory.episodes.run_event import MAX_EVENTS, RunEvent, run_event

AT = 1_750_000_000_000
KINDS = (
    "speculation_start", "task_complete", "ail_decision", "hil_decision", "user_feedback",
    "workflow_complete",
)  # fmt: skip
TEXTS = st.text(st.characters(), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
DATA = st.fixed_dictionaries(
    {},
    optional={
        "context": st.dictionaries(st.sampled_from(["domain", "complexity", "x"]), JSON) | JSON,
        "query": TEXTS | JSON,
        "response": TEXTS,
        "outcome": st.sampled_from(["success", "failure", "partial", "aborted", "other"]),
        "arguments": JSON,
        "prediction": st.fixed_dictionaries(
            {},
            optional={"was_correct": st.booleans(), "speculated": JSON, "failed": st.booleans()},
        ) | JSON,
        "result": st.fixed_dictionaries({}, optional={"cost_ms": JSON}) | JSON,
        "concepts": st.lists(TEXTS) | JSON,
        "insights": st.lists(TEXTS) | JSON,
        "agents_used": st.lists(TEXTS) | JSON,
        "memory": st.fixed_dictionaries({"episodes": st.lists(JSON)}) | JSON,
        "correction": st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("query", "outcome", "concepts", "x"), TEXTS | JSON)
        ) | JSON,
        "reward": JSON,
        "accepted": JSON,
    },
)  # fmt: skip
EVENTS = st.lists(
    st.builds(
        RunEvent,
        timestamp=st.integers(AT, AT + 20),
        id=st.uuids().map(str),
        event_type=st.sampled_from(KINDS),
        task_id=st.none() | st.sampled_from("ab"),
        user_id=st.none() | st.sampled_from("uv"),
        agent_id=st.none() | st.sampled_from("gh"),
        session_id=st.none(),
        tool_id=st.none() | st.sampled_from(["search", "buy"]),
        success=st.none() | st.booleans(),
        confidence=st.none() | st.floats(0, 1),
        data=DATA,
    ),
    min_size=1,
    max_size=12,
    unique_by=lambda event: event.id,
)


def event(kind: str = "task_complete", at: int = 0, number: int = 0, **fields: Any) -> RunEvent:
    data = fields.pop("data", {})
    own = str(UUID(int=number or random.getrandbits(120)))
    return run_event({"id": own, "timestamp": AT + at, "event_type": kind, "data": data, **fields})


def made(*events: RunEvent) -> Episode:
    return assemble("acme", "refund", "w1", events)


@given(EVENTS, st.randoms())
def test_the_order_of_events_and_repetitions_change_nothing(
    events: list[RunEvent], draw: random.Random
) -> None:
    expected = made(*events)
    shuffled = [*events, *draw.sample(events, len(events) // 2)]
    draw.shuffle(shuffled)
    assert repr(made(*shuffled)) == repr(expected)


@given(EVENTS)
def test_every_episode_can_be_stored(events: list[RunEvent]) -> None:
    episode = made(*events)
    texts = [episode.query, episode.response, orjson.dumps(episode.context).decode()]
    for text in (*texts, *episode.concepts, *episode.insights, *episode.agents_used):
        assert "\x00" not in (text or "")
        (text or "").encode()
    assert "\\u0000" not in (texts[2] or "")
    assert unpack_calls(pack_calls(episode.calls)) == episode.calls
    assert episode.reward is None or 0 <= episode.reward <= 1
    assert all(-(2**63) <= each < 2**63 for each in episode.reference_ids)


def test_a_whole_run() -> None:
    context = {"domain": "retail", "complexity": "low"}
    episode = made(
        event("speculation_start", 0, task_id="t1", confidence=0.8, user_id="u7", agent_id="a",
              data={"context": context, "query": "a step", "prediction": {"tool_id": "find"}}),
        event("task_complete", 5, task_id="t1", tool_id="find", success=True, data={
            "arguments": {"b": 1.0, "a": [None]}, "prediction": {"was_correct": True}}),
        event("speculation_start", 6, task_id="t2", confidence=0.6,
              data={"prediction": {"tool_id": "find", "speculated": True}}),
        event("task_complete", 9, task_id="t2", tool_id="cancel", success=False, data={
            "arguments": '{"id": 7}', "result": {"cost_ms": 40}, "concepts": ["order", "order"]}),
        event("workflow_complete", 12, success=False, data={
            "outcome": "partial", "query": "  Cancel my ORDER ", "response": "Done.",
            "insights": ["cancel early"], "result": {"execution_time_ms": 812.5},
            "memory": {"episodes": ["-5", 7, "x", 2**70]}}),
        event("user_feedback", 90, user_id="u7", data={"accepted": True, "target_id": "x"}),
    )  # fmt: skip
    assert episode == Episode(
        id=episode_id("acme", "refund", "w1"), tenant="acme", workflow_type="refund",
        workflow_id="w1", user_id="u7", agent_id="a", session_id=None, started=AT, ended=AT + 90,
        outcome="partial", reward=0.75, confidence=0.7, duration_ms=812.5, cost_ms=40.0,
        query="  Cancel my ORDER ", query_hash=query_hash("cancel my order"),
        context=context, context_hash=context_hash("refund", context),
        first_call=episode.first_call,
        calls=(MadeCall("find", '{"a":[null],"b":1}', True), MadeCall("cancel", '{"id":7}', False)),
        concepts=("order",), domains=("retail",), agents_used=("a",), insights=("cancel early",),
        reference_ids=(-5, 7), response="Done.", events=6,
    )  # fmt: skip
    assert episode.writer == "user:u7"
    assert episode.tools == ("find", "cancel")


@pytest.mark.parametrize(
    ("outcome", "feedback", "reward"),
    [
        ("success", [], 1.0),
        ("partial", [], 0.5),
        ("failure", [], 0.0),
        ("aborted", [], 0.0),
        (None, [], None),
        (None, [{"accepted": False}], 0.0),
        ("success", [{"reward": -3}], 0.5),
        ("success", [{"reward": 0.5, "accepted": False}], 0.75),
        ("failure", [{"accepted": True}] * 100, 0.5),  # of one user once
        ("failure", [{"accepted": True, "source": "system"}], 0.0),
        ("failure", [{}], 0.0),
    ],
)
def test_rewards(outcome: str | None, feedback: list[Mapping[str, Any]], reward: float) -> None:
    told = [event("user_feedback", number, data=each) for number, each in enumerate(feedback, 1)]
    end = event("workflow_complete", 5, data={"outcome": outcome}) if outcome else event()
    assert made(end, *told).reward == reward


@pytest.mark.parametrize(
    ("data", "success", "counts"),
    [
        ({"prediction": {"was_correct": True}}, None, True),
        ({}, None, True),
        # The outcomes of wrong and failed guesses: the call itself has an event of its own.
        ({"prediction": {"was_correct": False}, "result": {"cost_ms": 3}}, None, False),
        ({"prediction": {"was_correct": False, "failed": True}}, False, False),
        # One event for both: it says how the call went.
        ({"prediction": {"was_correct": False}}, True, True),
        ({"prediction": {"was_correct": False}, "arguments": {}}, None, True),
    ],
)
def test_which_completions_are_calls(
    data: dict[str, Any],
    success: bool | None,
    counts: bool,
) -> None:
    episode = made(event(tool_id="search", success=success, data=data))
    assert bool(episode.calls) is counts


def test_bounds() -> None:
    long = "ß" * 1_000_000
    events = [event(number=n + 1, at=n, tool_id="t") for n in range(MAX_EVENTS + 500)]
    end = event("workflow_complete", -1, number=10**6, data={
        "query": long, "response": long, "context": {f"key {n}": n for n in range(10_000)} | {
            "domain": "retail", "deep": _deep(2_000)}})  # fmt: skip
    episode = made(*events, end)
    assert episode.events == MAX_EVENTS + 501
    assert len(episode.calls) == MAX_CALLS
    assert episode.query == long[:MAX_QUERY]
    assert episode.query_hash == query_hash(long) != query_hash(long[:-1])
    assert episode.response is None
    assert len(orjson.dumps(episode.context)) <= MAX_CONTEXT * 2
    assert episode.context["domain"] == "retail"


def _deep(levels: int) -> Any:
    found: Any = 1
    for _ in range(levels):
        found = {"in": found}
    return found


@pytest.mark.parametrize("data", [b"[1]", b"null", b"not JSON", b'{"query": 5, "context": []}'])
def test_content_that_is_no_object_is_empty(data: bytes) -> None:
    episode = made(event()._replace(data=data))
    assert (episode.query, episode.context, episode.calls) == (None, {}, ())


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (None, "{}"),
        ("", "{}"),
        ('{"b":1,"a":2}', '{"a":2,"b":1}'),
        ("pwd", '{"$text":"pwd"}'),
        ([1], '{"$value":[1]}'),
        ("half \ud800", '{"$text":"half \ufffd"}'),
    ],
)
def test_arguments(arguments: Any, text: str) -> None:
    assert arguments_text(arguments) == text


def test_no_event_is_no_episode() -> None:
    with pytest.raises(ValueError, match="at least one event"):
        made()


@pytest.mark.parametrize("raw", [b"\x28\xb5\x2f\xfd", b"zzz", b"\x28\xb5\x2f\xfd\x00\x00"])
def test_damaged_calls_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no packed calls"):
        unpack_calls(raw)
