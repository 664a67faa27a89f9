"""Constructors and the workflow scope: ids filled in, a wrong value named at the call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headstart
from headstart import Emitter, InvalidEvent, NotDelivered
from headstart.events.schema import EventType, stamp
from headstart.events.validation import validate
from tests.client.recording_emitter import Taken

IDS: dict[str, Any] = {"workflow_type": "refund", "workflow_id": "w1"}
KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "speculation_start": (
        headstart.speculation_start,
        {"task_id": "t", "guess": "search", "confidence": 0.8, "speculated": True},
    ),
    "task_complete": (headstart.task_complete, {"task_id": "t", "tool_id": "search"}),
    "ail_decision": (headstart.ail_decision, {"type": "route", "action": "go"}),
    "hil_decision": (headstart.hil_decision, {"type": "pay", "action": "go", "accepted": True}),
    "workflow_complete": (headstart.workflow_complete, {"outcome": "partial"}),
    "user_feedback": (headstart.user_feedback, {"target_id": "x", "reward": -1.5}),
}


def test_every_kind_has_its_constructor() -> None:
    assert set(KINDS) == set(EventType.__args__)  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_a_constructor_makes_a_valid_event(kind: str) -> None:
    construct, fields = KINDS[kind]
    event = construct(**IDS, **fields, context={"domain": "retail"}, data={"mine": 1})
    validate(event)
    assert event["event_type"] == kind
    assert event["data"]["context"] == {"domain": "retail"}
    assert event["data"]["mine"] == 1
    assert None not in event.values()


@pytest.mark.parametrize(
    ("kind", "fields", "field"),
    [
        ("speculation_start", {"confidence": 7}, "confidence"),
        ("speculation_start", {"mode": "x"}, "data.prediction.mode"),
        ("speculation_start", {"workflow_id": ""}, "workflow_id"),
        ("speculation_start", {"task_id": None}, "task_id"),
        ("speculation_start", {"confidence": None}, "confidence"),
        ("speculation_start", {"guess": None}, "data.prediction.tool_id"),
        ("task_complete", {"gain_ms": -1}, "data.result.gain_ms"),
        ("task_complete", {"was_correct": "yes"}, "data.prediction.was_correct"),
        ("task_complete", {"timestamp": 1e12}, "timestamp"),
        ("ail_decision", {"action": 1}, "data.decision.action"),
        ("hil_decision", {"accepted": "no"}, "data.decision.accepted"),
        ("workflow_complete", {"outcome": "fine"}, "data.outcome"),
        ("user_feedback", {"source": "dog"}, "data.source"),
        ("user_feedback", {"confidence": 2}, "confidence"),
    ],
)
def test_a_wrong_value_is_named_at_the_call(kind: str, fields: dict[str, Any], field: str) -> None:
    construct, good = KINDS[kind]
    with pytest.raises(InvalidEvent) as caught:
        construct(**{**IDS, **good, **fields})
    assert caught.value.field == field


@pytest.mark.parametrize("field", ["result", "prediction", "decision"])
@pytest.mark.parametrize("value", ["x", 3, [], [1], True])
@pytest.mark.parametrize("kind", KINDS)
def test_data_with_another_type_than_an_object_is_named(
    kind: str, field: str, value: object
) -> None:
    construct, good = KINDS[kind]
    with pytest.raises(InvalidEvent, match="must be an object") as caught:
        construct(**{**IDS, **good, "data": {field: value}})
    assert caught.value.field == f"data.{field}"


def test_feedback_may_repeat_the_confidence_of_what_is_meant() -> None:
    event = headstart.user_feedback(**IDS, target_id="x", accepted=False, confidence=0.8)
    assert (event["confidence"], event["data"]["accepted"]) == (0.8, False)


def test_without_a_scope_the_ids_are_missing() -> None:
    with pytest.raises(InvalidEvent) as caught:
        headstart.task_complete(tool_id="search")
    assert caught.value.field == "workflow_type"


@pytest.mark.parametrize("missing", ["task_id", "confidence"])
def test_a_start_that_no_completion_can_be_joined_to_is_refused_in_every_way(
    missing: str, emitter: Taken
) -> None:
    start = {"event_type": "speculation_start", "task_id": "t", "confidence": 0.8, **IDS}
    del start[missing]
    with run_of(emitter, workflow_id="w1") as run:
        for emit in (emitter.emit, run.emit, lambda event: emitter.emit(**event)):
            for absent in ({}, {missing: None}):
                with pytest.raises(InvalidEvent) as caught:
                    emit({**start, **absent})
                assert caught.value.field == missing
    with pytest.raises(InvalidEvent, match=missing):
        headstart.validate(stamp(start))
    assert emitter.stats()["emitted"] == 1  # the end of the run


def test_a_plain_step_needs_no_prediction(emitter: Taken) -> None:
    emitter.emit(headstart.task_complete(**IDS, tool_id="search", success=True))
    emitter.emit(event_type="task_complete", **IDS)
    assert emitter.stats()["emitted"] == 2


@pytest.fixture
def emitter(tmp_path: Path) -> Any:
    made = Taken(tmp_path)
    yield made
    with pytest.raises(NotDelivered):
        made.close(0.0)


def run_of(emitter: Emitter, **more: Any) -> headstart.Workflow:
    given = {"workflow_type": "refund", "tenant": "acme", "user_id": "u7", "flush_s": 0.0}
    return headstart.workflow(**{**given, **more}, emitter=emitter)


def test_the_scope_fills_in_ids_and_logs_its_end(
    emitter: Taken, caplog: pytest.LogCaptureFixture
) -> None:
    with run_of(emitter, context={"domain": "retail"}) as run:
        run.emit(headstart.task_complete(tool_id="search", context={"complexity": 1}))
    task, end = emitter.events
    for event in (task, end):
        assert event["workflow_id"] == run.id
        assert (event["tenant"], event["user_id"]) == ("acme", "u7")
    assert task["data"]["context"] == {"domain": "retail", "complexity": 1}
    assert end["data"]["outcome"] == "success"
    assert end["data"]["result"]["execution_time_ms"] >= 0
    assert "not acknowledged" in caplog.text  # the broker is away, and no work stops


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ValueError, "failure"), (KeyboardInterrupt, "aborted"), (asyncio.CancelledError, "aborted")],
)
def test_an_exception_is_an_outcome_and_goes_on(
    emitter: Taken, error: type[BaseException], outcome: str
) -> None:
    with pytest.raises(error), run_of(emitter):
        raise error
    assert [event["data"]["outcome"] for event in emitter.events] == [outcome]


def test_the_first_completion_decides_the_outcome(emitter: Taken) -> None:
    with run_of(emitter) as run:
        run.complete("partial", response="half")
    (end,) = emitter.events
    assert (end["data"]["outcome"], end["data"]["response"]) == ("partial", "half")


def test_scopes_of_concurrent_tasks_do_not_meet(emitter: Taken) -> None:
    async def one(name: str) -> None:
        async with run_of(emitter, workflow_id=name) as run:
            await asyncio.sleep(0)
            run.emit(headstart.task_complete(tool_id=name))
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(one("a"), one("b"))

    asyncio.run(both())
    tools = [event for event in emitter.events if event["event_type"] == "task_complete"]
    assert all(event["workflow_id"] == event["tool_id"] for event in tools)
    assert len(emitter.events) == 4


def test_a_scope_with_invalid_fields_is_refused(emitter: Taken) -> None:
    with pytest.raises(InvalidEvent) as caught:
        run_of(emitter, tenant="a\x1fb")
    assert caught.value.field == "tenant"
    emitter.emit({**IDS, "event_type": "task_complete"})


def test_nothing_is_logged_by_default() -> None:
    assert logging.getLogger("headstart").handlers == []


def test_named_fields_are_put_into_content_of_the_callers_own() -> None:
    own = {"result": {"gain_ms": 400, "output": "x"}, "prediction": {"was_correct": True}, "n": 1}
    where = {"workflow_type": "refund", "workflow_id": "w", "task_id": "1", "tool_id": "s"}
    event = headstart.task_complete(**where, data=own, cost_ms=600)
    assert event["data"] == {
        "result": {"gain_ms": 400, "output": "x", "cost_ms": 600},
        "prediction": {"was_correct": True},
        "n": 1,
    }
    for wrong in ({"result": {"gain_ms": "x"}}, {"prediction": {"was_correct": "true"}}, [1]):
        with pytest.raises(headstart.InvalidEvent, match="data"):
            headstart.task_complete(**where, data=wrong)
