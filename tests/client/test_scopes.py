"""The scope of a workflow: an event is of the run that emits it, and a run ends once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import headstart
from headstart import InvalidEvent, NotDelivered
from headstart.events.constructors import scope
from headstart.keys import DEFAULT_LEVELS
from headstart.thresholds.reader import AsyncThresholds, Thresholds
from tests.client.recording_emitter import Taken


@pytest.fixture
def emitter(tmp_path: Path) -> Any:
    made = Taken(tmp_path)
    yield made
    with pytest.raises(NotDelivered):
        made.close(0.0)


def run_of(emitter: Taken, name: str, **fields: Any) -> headstart.Workflow:
    """A run that has everything of its own."""
    own = {
        "workflow_type": f"{name} type", "workflow_id": f"{name} id", "tenant": f"{name} tenant",
        "user_id": f"{name} user", "agent_id": f"{name} agent", "context": {"domain": name},
    }  # fmt: skip
    return headstart.workflow(**{**own, **fields}, emitter=emitter, flush_s=0.0)


def is_of(event: dict[str, Any], name: str) -> bool:
    ids = ("workflow_type", "workflow_id", "tenant", "user_id", "agent_id")
    own = {key: f"{name} {key.removeprefix('workflow_').removesuffix('_id')}" for key in ids}
    return own.items() <= event.items() and event["data"]["context"] == {"domain": name}


def tasks(emitter: Taken) -> list[dict[str, Any]]:
    return [event for event in emitter.events if event["event_type"] == "task_complete"]


def in_a_thread(work: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def emits(run: headstart.Workflow, **fields: Any) -> str:
    return run.emit(headstart.task_complete(task_id="1", tool_id="search", **fields))


def test_events_of_a_run_emitted_within_another_scope_are_its_own(emitter: Taken) -> None:
    with run_of(emitter, "outer") as outer, run_of(emitter, "inner") as inner:
        emits(outer)
        emits(inner)
        outer.complete("partial")
    first, second = tasks(emitter)
    assert is_of(first, "outer")
    assert is_of(second, "inner")
    outcomes = {
        e["workflow_id"]: e["data"]["outcome"] for e in emitter.events if "outcome" in e["data"]
    }
    assert outcomes == {"outer id": "partial", "inner id": "success"}
    assert all(is_of(event, event["data"]["context"]["domain"]) for event in emitter.events)


def test_events_of_a_run_emitted_in_another_thread_are_its_own(emitter: Taken) -> None:
    with run_of(emitter, "outer") as outer:
        in_a_thread(lambda: emits(outer))
        in_a_thread(lambda: outer.complete("success"))
    assert is_of(tasks(emitter)[0], "outer")
    assert is_of(emitter.events[-1], "outer")


def test_an_event_made_in_one_scope_and_emitted_by_another_run_is_the_others(
    emitter: Taken,
) -> None:
    with run_of(emitter, "outer") as outer:
        with run_of(emitter, "inner", session_id="inner session"):
            event = headstart.task_complete(task_id="1", tool_id="search")
        outer.emit(event)
    assert is_of(tasks(emitter)[0], "outer")
    assert "session_id" not in tasks(emitter)[0]
    assert event["workflow_id"] == "inner id", "the event itself is left as it was"


def test_arguments_take_precedence_over_the_scope(emitter: Taken) -> None:
    with run_of(emitter, "outer") as outer, run_of(emitter, "inner"):
        emits(outer, user_id="mine", context={"domain": "mine", "complexity": 2})
        emits(outer, user_id="inner user")
    first, second = tasks(emitter)
    assert (first["user_id"], first["agent_id"]) == ("mine", "outer agent")
    assert first["data"]["context"] == {"domain": "mine", "complexity": 2}
    assert second["user_id"] == "inner user", "given, though the inner scope has it too"


def test_a_mapping_is_filled_in_as_well(emitter: Taken) -> None:
    with run_of(emitter, "outer") as outer, run_of(emitter, "inner"):
        outer.emit({"event_type": "task_complete", "task_id": "1", "data": {"mine": 1}})
    assert is_of(tasks(emitter)[0], "outer")
    assert tasks(emitter)[0]["data"]["mine"] == 1


@pytest.mark.parametrize("name", ["workflow_id", "workflow_type", "tenant"])
def test_an_event_that_names_another_run_is_refused(emitter: Taken, name: str) -> None:
    with run_of(emitter, "outer") as outer:
        with pytest.raises(InvalidEvent, match="this is run 'outer id'") as caught:
            emits(outer, **{name: "another"})
        assert caught.value.field == name
    assert not tasks(emitter)


def test_outside_of_every_scope_missing_ids_are_named_at_once() -> None:
    with pytest.raises(InvalidEvent, match="workflow_type"):
        headstart.task_complete(task_id="1", tool_id="search")


def test_outside_of_every_scope_a_run_that_has_ended_is_named(emitter: Taken) -> None:
    with run_of(emitter, "r"):
        pass
    with pytest.raises(InvalidEvent, match="workflow_type: is missing: the run has ended"):
        headstart.task_complete(task_id="1")
    with pytest.raises(InvalidEvent, match=r"^confidence: must be"):
        headstart.task_complete(workflow_type="w", workflow_id="x", task_id="1", confidence=7)


def test_events_outside_of_any_run_get_no_ids(emitter: Taken) -> None:
    with run_of(emitter, "outer"):
        event = in_a_thread(lambda: headstart.task_complete(task_id="1", tool_id="search"))
        with pytest.raises(InvalidEvent, match="workflow_type"):
            emitter.emit(event)


def test_a_second_end_is_refused_and_names_the_workflow(emitter: Taken) -> None:
    with run_of(emitter, "outer") as outer:
        outer.complete("success")
        with pytest.raises(RuntimeError, match=r"workflow outer id has already completed"):
            outer.complete("failure")
        with pytest.raises(RuntimeError, match="outer id"):
            outer.emit(headstart.workflow_complete(outcome="failure"))
    assert [event["data"]["outcome"] for event in emitter.events] == ["success"]


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_an_end_after_the_end_of_the_scope_is_refused(
    emitter: Taken, error: type[BaseException] | None
) -> None:
    try:
        with run_of(emitter, "outer") as outer:
            if error is not None:
                raise error
    except (ValueError, KeyboardInterrupt):
        pass
    with pytest.raises(RuntimeError, match="outer id has already completed"):
        outer.complete("success")
    assert len(emitter.events) == 1


def test_of_many_threads_one_ends_the_run(emitter: Taken) -> None:
    refused: list[RuntimeError] = []

    def end() -> None:
        try:
            outer.complete("success")
        except RuntimeError as error:
            refused.append(error)

    with run_of(emitter, "outer") as outer:
        threads = [threading.Thread(target=end) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (len(emitter.events), len(refused)) == (1, 7)


def test_an_end_that_was_not_taken_is_none(emitter: Taken) -> None:
    with run_of(emitter, "outer") as outer:
        with pytest.raises(InvalidEvent):
            outer.complete("fine")  # type: ignore[arg-type]
        outer.complete("partial")
    assert [event["data"]["outcome"] for event in emitter.events] == ["partial"]


def test_a_scope_is_entered_once(emitter: Taken) -> None:
    with run_of(emitter, "outer") as outer:
        pass
    with pytest.raises(RuntimeError, match="outer id was entered before"), outer:
        pass


def test_scopes_may_end_in_any_order(emitter: Taken) -> None:
    outer, inner = run_of(emitter, "outer"), run_of(emitter, "inner")
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert headstart.task_complete(task_id="1")["workflow_id"] == "inner id"
    inner.__exit__(None, None, None)
    assert not scope.get()


def test_a_scope_may_end_in_another_thread(emitter: Taken) -> None:
    outer = run_of(emitter, "outer")
    outer.__enter__()
    in_a_thread(lambda: outer.__exit__(None, None, None))
    assert is_of(emitter.events[-1], "outer")
    scope.set({})


def test_feedback_after_the_end_is_of_the_run(emitter: Taken) -> None:
    with run_of(emitter, "outer") as outer:
        pass
    outer.emit({"event_type": "user_feedback", "data": {"target_id": "x", "reward": 1}})
    assert is_of(emitter.events[-1], "outer")


class Asked:
    """Takes the contexts that a reader is asked for."""

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []
        self.modes: list[tuple[str, str | None]] = []

    def of(self, context: Any) -> headstart.Threshold:
        self.contexts.append(dict(context))
        return headstart.Threshold()


class Reader(Asked, Thresholds):
    def __init__(self) -> None:
        Asked.__init__(self)
        self._levels = DEFAULT_LEVELS

    def get(self, context: Any = None, /, **_: Any) -> headstart.Threshold:
        return self.of(context)

    def mode(self, tenant: str = "default", agent_id: str | None = None) -> Any:
        self.modes.append((tenant, agent_id))
        return "act"


class AsyncReader(Asked, AsyncThresholds):
    def __init__(self) -> None:
        Asked.__init__(self)
        self._levels = DEFAULT_LEVELS

    async def get(self, context: Any = None, /, **_: Any) -> headstart.Threshold:
        return self.of(context)

    async def mode(self, tenant: str = "default", agent_id: str | None = None) -> Any:
        self.modes.append((tenant, agent_id))
        return "act"


OUTER = {
    "workflow_type": "outer type", "workflow_id": "outer id", "tenant": "outer tenant",
    "user_id": "outer user", "agent_id": "outer agent", "domain": "outer",
}  # fmt: skip


def test_a_turn_takes_its_ids_from_the_scope(emitter: Taken) -> None:
    reader = AsyncReader()
    speculator = headstart.AsyncSpeculator(reader, emitter)

    async def guess(context: dict[str, Any]) -> None:
        guessed = headstart.GuessedCall("search", {}, 0.5)
        async with speculator.turn(context, [guessed], lambda *call: asyncio.sleep(0)) as turn:
            turn.settle([headstart.RequestedCall("1", "search", {})])

    async def both() -> None:
        async with run_of(emitter, "outer"):
            await guess({})
            await guess({"user_id": "mine", "domain": "mine", "step": 2})

    asyncio.run(both())
    assert reader.contexts == [OUTER, {**OUTER, "user_id": "mine", "domain": "mine", "step": 2}]
    assert reader.modes == [("outer tenant", "outer agent")] * 2
    start, end, other, _, _ = emitter.events
    assert is_of(start, "outer")
    assert is_of(end, "outer")
    assert other["user_id"] == "mine"
    assert other["data"]["context"] == {"domain": "mine", "step": 2}


def test_a_decision_takes_its_context_from_the_scope(emitter: Taken) -> None:
    reader, other = Reader(), AsyncReader()

    async def decide() -> None:
        with run_of(emitter, "outer"):
            headstart.Speculator(reader).decide({}, "search", 0.5)
            await headstart.AsyncSpeculator(other).decide({"user_id": None}, "search", 0.5)

    asyncio.run(decide())
    assert reader.contexts == [OUTER]
    assert other.contexts == [{**OUTER, "user_id": None}], "given, even if None"


def test_an_attempt_of_another_run_takes_nothing_from_the_scope(emitter: Taken) -> None:
    reader = Reader()
    with run_of(emitter, "outer"):
        headstart.Speculator(reader).decide({"workflow_type": "another"}, "search", 0.5)
    assert reader.contexts == [{"workflow_type": "another"}]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("type", "workflow_type"), ("id", "workflow_id"), ("user", "user_id"),
        ("agent", "agent_id"), ("session", "session_id"), ("tenent", "tenant"),
        ("emiter", "emitter"), ("flush", "flush_s"),
    ],
)  # fmt: skip
def test_an_argument_of_another_name_is_named_with_the_right_one(old: str, new: str) -> None:
    with pytest.raises(TypeError, match=rf"workflow\(\) has no argument '{old}'.*'{new}'"):
        headstart.workflow(**{"workflow_type": "refund", old: "x"})


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "workflow_type"),
        ({"workflow_type": None}, "workflow_type"),
        ({"workflow_type": ""}, "workflow_type"),
        ({"workflow_type": 5}, "workflow_type"),
        ({"workflow_type": "refund", "workflow_id": 5}, "workflow_id"),
        ({"workflow_type": "refund", "workflow_id": ""}, "workflow_id"),
        ({"workflow_type": "refund", "user_id": 7}, "user_id"),
        ({"workflow_type": "refund", "tenant": ""}, "tenant"),
        ({"workflow_type": "refund", "context": "retail"}, "context"),
        ({"workflow_type": "refund", "emitter": "127.0.0.1:9092"}, "emitter"),
        ({"workflow_type": "refund", "flush_s": "5"}, "flush_s"),
    ],
    ids=str,
)
def test_a_wrong_value_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field}"):
        headstart.workflow(**fields)


@pytest.mark.parametrize(
    ("kind", "given", "meant"),
    [
        ("task_complete", "tool", "tool_id"),
        ("task_complete", "user", "user_id"),
        ("task_complete", "gain", "gain_ms"),
        ("speculation_start", "type", "workflow_type"),
        ("speculation_start", "guesss", "guess"),
        ("workflow_complete", "reponse", "response"),
        ("user_feedback", "acepted", "accepted"),
    ],
)
def test_a_field_of_another_name_is_named_with_the_right_one(
    kind: str, given: str, meant: str
) -> None:
    required: dict[str, dict[str, Any]] = {
        "speculation_start": {"guess": "x", "confidence": 0.5, "speculated": False},
        "workflow_complete": {"outcome": "success"},
        "user_feedback": {"target_id": "x"},
    }
    ids = {"workflow_type": "refund", "workflow_id": "w", "task_id": "1"}
    with pytest.raises(TypeError, match=rf"{kind}\(\) has no argument '{given}'.*'{meant}'"):
        getattr(headstart, kind)(**required.get(kind, {}), **ids, **{given: "x"})
