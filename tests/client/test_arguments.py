"""Every public call of the client names an argument that it cannot use, before anything happens."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

import headstart
from headstart.arguments.checks import InvalidArgument, number
from headstart.speculation.cost_budget import CostBudget

NOWHERE = "redis://127.0.0.1:1"
KAFKA = "127.0.0.1:1"


def emitter(**options: Any) -> headstart.Emitter:
    return headstart.Emitter(**{"kafka": KAFKA, "durable": False, **options})


def reader(**options: Any) -> headstart.Thresholds:
    return headstart.Thresholds(**{"redis_url": NOWHERE, **options})


def get(**fields: Any) -> object:
    return reader().get(**{"workflow_type": "refund", **fields})


def get_async(**fields: Any) -> object:
    asked = headstart.AsyncThresholds(NOWHERE).get(**{"workflow_type": "refund", **fields})
    return asyncio.run(asked)  # type: ignore[arg-type]


def decide(context: Any = None, **options: Any) -> object:
    given = {"workflow_type": "refund"} if context is None else context
    arguments = {"tool": "search", "confidence": 0.9, **options}
    return headstart.Speculator(reader()).decide(given, **arguments)


def turn(context: Any = None, **options: Any) -> object:
    async def call(tool: str, arguments: object) -> None: ...

    given = {"workflow_type": "refund"} if context is None else context
    guess = {"tool": "search", "arguments": {}, "confidence": 0.9}
    guess |= {name: options.pop(name) for name in (*guess, "gain", "cost") if name in options}
    guesses = options.pop("guesses", [headstart.GuessedCall(**guess)])
    speculator = headstart.AsyncSpeculator(headstart.AsyncThresholds(NOWHERE))
    return speculator.turn(given, guesses, **{"run": call, **options})


def run(**options: Any) -> headstart.Workflow:
    with emitter() as sends:
        return headstart.workflow(**{"workflow_type": "refund", "emitter": sends, **options})


def emit_in_run(*event: Any, **fields: Any) -> object:
    return run().emit(*event, **fields)


def speculator(**options: Any) -> object:
    return headstart.Speculator(reader(), **options)


def missed(cost: Any) -> None:
    headstart.Speculator(reader()).missed(cost)


def mode(**options: Any) -> object:
    return reader().mode(**options)


def arm(**options: Any) -> object:
    known = {"experiment": "e", "shares": {"a": 1}, "workflow_id": "w"}
    return headstart.arm_of(**{**known, **options})


def settings(**options: Any) -> object:
    return headstart.SpoolSettings(**{"directory": Path("/nowhere"), **options})


def pattern(**options: Any) -> object:
    return headstart.Pattern(**{"name": "n", "expression": "e", **options})


NUMBERS = (None, "5", True, math.nan, -1)
WRONG: list[tuple[Callable[..., object], str, tuple[Any, ...]]] = [
    (emitter, "kafka", (None, 5, "", "host:port", ["h:1"])),
    (emitter, "topic", (None, 5, "", "a b")),
    (emitter, "linger_s", (*NUMBERS, math.inf)),
    (emitter, "buffer", (*NUMBERS, 0, math.inf, 1.5)),
    (emitter, "durable", (None, "no", "yes", 0, 1)),
    (emitter, "on_full", ("wait", 5)),
    (emitter, "scrub", ("never", 5)),
    (emitter, "client_id", (5, "a b")),
    (emitter, "compression", ("zip", 5)),
    (emitter, "durabel", (True,)),
    (reader, "redis_url", (None, 5, "127.0.0.1", "")),
    (reader, "levels", (None, "domain", 5, [5])),
    (reader, "timeout_s", (*NUMBERS, 0, math.inf)),
    (reader, "staleness_s", (*NUMBERS, math.inf)),
    (reader, "mirror_limit", (*NUMBERS, 0, math.inf, 1.5)),
    (reader, "clock", (None, 5)),
    (reader, "stalenes_s", (1,)),
    *[
        (call, name, values)
        for call in (get, get_async)
        for name, values in (
            ("workflow_type", (None, 5, "")), ("tenant", (None, 5, "")),
            ("user_id", (5, "", ["u7"])), ("agent_id", (5,)), ("tool", (5, "")),
            ("domain", (["retail"], {}, "x" * 300)), ("userid", ("u7",)), ("tenent", ("acme",)),
        )
    ],
    (mode, "tenant", (None, 5, "")),
    (mode, "agent_id", (5, "")),
    (speculator, "wasted_per_minute", ("5", True, math.nan, -1)),
    (speculator, "exploration", (*NUMBERS, 1.1, math.inf)),
    (speculator, "allow", (["search"],)),
    *[
        (call, name, values)
        for call in (decide, turn)
        for name, values in (
            ("context", (5, "refund", ["refund"])), ("tool", (None, 5, "")),
            ("confidence", (*NUMBERS, 1.1, math.inf)), ("gain", ("5", True, -1, math.inf)),
            ("cost", ("5", True, -1, math.nan, math.inf)),
        )
    ],
    (turn, "run", (None, 5)),
    (turn, "limit", (None, -1, 1.5, "1")),
    (turn, "guesses", (["search"], [("search", {}, 0.9)])),
    (missed, "cost", (*NUMBERS, math.inf)),
    (run, "workflow_type", (None, 5, "")),
    (run, "tenant", (5, "")),
    (run, "user_id", (5, "")),
    (run, "context", (5, "x")),
    (run, "emitter", (5, "x")),
    (run, "flush_s", NUMBERS),
    (run, "user", ("u7",)),
    (emit_in_run, "event_type", ("task_complete",)),
    (arm, "experiment", (None, 5, "")),
    (arm, "shares", (None, 5, {"a": math.nan}, {"a": math.inf}, {"a": "1"}, {5: 1}, {"a": -1})),
    (arm, "workflow_id", (None, 5, "")),
    (settings, "directory", (None, 5, "")),
    (settings, "limit_bytes", (*NUMBERS, 0, math.inf, 1.5)),
    (settings, "segment_bytes", (*NUMBERS, 0, math.inf)),
    (settings, "segment_s", NUMBERS),
    (settings, "fsync_s", (*NUMBERS, math.inf)),
    (settings, "on_full", (None, 5, "wait")),
    (settings, "fsync", (None, 5, "always")),
    (pattern, "name", (None, 5, "")),
    (pattern, "expression", (None, 5, "")),
    (pattern, "hint", (5,)),
    (pattern, "ignore_case", (None, "no")),
    (headstart.Scrubbing, "keys", (None, "pin", 5)),
    (headstart.Scrubbing, "patterns", (None, "x", ["x"])),
    (headstart.Scrubbing, "without", (None, "card", ["unheard-of"])),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "name", "value"),
    [
        pytest.param(call, name, value, id=f"{call.__name__}-{name}-{value!r:.20}")
        for call, name, values in WRONG
        for value in values
    ],
)
def test_what_cannot_be_used_is_named(call: Any, name: str, value: Any) -> None:
    message = {"limit_bytes": "limit_bytes", "without": "no pattern|without"}.get(name, name)
    message = "an experiment's shares|shares" if name == "shares" else message
    message = "compression" if name == "compression" else message
    with pytest.raises((InvalidArgument, headstart.InvalidEvent), match=message):
        call(**{name: value})


@pytest.mark.parametrize("event", [None, 5, "task_complete", ["x"]])
def test_a_run_emits_one_mapping(event: Any) -> None:
    with pytest.raises(InvalidArgument, match="one mapping"):
        emit_in_run(event)


@pytest.mark.parametrize("seconds", ["5", None, math.nan, -1])
def test_a_flush_waits_for_a_number_of_seconds(seconds: Any) -> None:
    with emitter() as sends, pytest.raises(InvalidArgument, match="timeout_s"):
        sends.flush(seconds)


OTHER_SPELLINGS: Final = """
    tenant_id tennant tenants tenent Tenant tenantId tenant-id tennant_id tenantName tenat tnant
    etnant tenanttt tenancy x_tenant_id worflow_type workflow_types workflowType workflow_tpye
    workflw_typ user uid userid userId USER_ID users_ids usr_id suer_id agent agnt_id agentIds
    sesion_id session_ids taks_id tasks_id workflow worklow_id domian Domain domainn domin
"""
CONTENT: Final = """
    customer_id user_tier user_name user_kind task_kind task_idx workflow_name workflow_step
    workflow_time domains domain_id tools tool_name parent_id event_id version_id mission_id
    tax_id test_id case_id to_id mask_id pool_id item_id account_id order_id talent content
"""


@pytest.mark.parametrize("name", OTHER_SPELLINGS.split())
@pytest.mark.parametrize("call", [decide, turn])
def test_a_context_of_a_guess_has_no_misspelt_dimension(call: Any, name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        call({"workflow_type": "refund", name: "u7"})


@pytest.mark.parametrize("call", [decide, turn])
def test_content_of_a_context_is_let_pass(call: Any) -> None:
    context = {"workflow_type": "refund", "complexity": 3, "region": "eu", "user_id": None}
    call({**context, **dict.fromkeys(CONTENT.split(), "x")})


@pytest.mark.parametrize("call", [decide, turn])
def test_a_context_within_a_context_is_refused(call: Any) -> None:
    with pytest.raises(InvalidArgument, match="stand beside workflow_type"):
        call({"workflow_type": "refund", "context": {"domain": "retail"}})
    call({"workflow_type": "refund", "context": "a text"})


@pytest.mark.parametrize("call", [decide, turn])
def test_content_of_a_run_is_let_pass(call: Any) -> None:
    content = {"customer_id": "c7", "agent_version": "2"}
    sends = emitter()
    with headstart.workflow(workflow_type="refund", emitter=sends, context=content):
        call({"workflow_type": "refund"})
    with suppress(headstart.NotDelivered):  # there is no broker
        sends.close(0.0)


@pytest.mark.parametrize(("limit", "cost"), [(0.0, 0.0), (0.0, 5.0), (10.0, 0.0)])
def test_a_limit_that_is_reached_admits_nothing(limit: float, cost: float) -> None:
    breaker = CostBudget(limit)
    breaker.settle(0.0, limit, 0.0)
    assert not breaker.fits(cost, 1.0)
    assert not breaker.reserve(cost, 1.0)
    assert CostBudget(math.inf).reserve(5.0, 1.0)


def test_infinity_is_taken_only_where_it_means_no_limit() -> None:
    assert number("n", math.inf, 0.0, math.inf) == math.inf
    with pytest.raises(InvalidArgument, match="finite"):
        number("n", math.inf, 0.0)


class Taken:
    """An emitter that keeps what it gets."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def emit(self, event: Any) -> str:
        self.events.append(event)
        return "id"

    def flush(self, timeout_s: float) -> None: ...


def test_an_event_after_the_end_is_kept_and_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    taken = Taken()
    with (
        caplog.at_level(logging.WARNING, "headstart"),
        headstart.workflow(workflow_type="refund", emitter=taken) as run,  # type: ignore[arg-type]
    ):
        late = headstart.task_complete(task_id="1", tool_id="search", success=True)
        run.emit(late)
        assert not caplog.records
        run.complete(outcome="success")
        run.emit(late)
        run.emit(late)
    assert len(taken.events) == 4
    (warning,) = caplog.records
    assert "had completed (success) when a task_complete" in warning.getMessage()


def complete(**fields: Any) -> object:
    ids = {"workflow_type": "refund", "workflow_id": "w1", "task_id": "1", "tool_id": "search"}
    return headstart.task_complete(**{**ids, **fields})


@pytest.mark.parametrize(
    ("key", "fix"),
    [
        ("user_id", "give user_id= to"), ("user", "give user_id= to"), ("userId", "give user_id="),
        ("tenant", "give tenant= to"), ("tenant_id", "give tenant= to"), ("agent", "give agent_id"),
        ("workflow_type", "give workflow_type="), ("session_ids", "give session_id= to"),
        ("tool_id", r"give tool_id= to task_complete\(\)"), ("tool", "give tool_id= to task_com"),
        ("task_id", "give task_id= to task_complete"), ("Domain", "did you mean 'domain'"),
        ("domian", "did you mean 'domain'"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("call", [run, complete])
def test_fields_and_misspellings_are_refused_within_a_context(
    call: Any, key: str, fix: str
) -> None:
    with pytest.raises(InvalidArgument, match=f"'{key}' does not count within context; {fix}"):
        call(context={"region": "eu", key: "x"})


@pytest.mark.parametrize("call", [run, complete])
def test_a_context_of_events_has_content_of_any_other_name(
    call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = {name: "x" for name in CONTENT.split() if name != "tool_name"}
    call(context={**content, "domain": "retail"})
    with pytest.raises(InvalidArgument, match="stand beside workflow_type"):
        call(context={"context": {"domain": "retail"}})
    monkeypatch.setenv("HEADSTART_LEVELS", "domain,user")
    call(context={"user": "a level of one's own"})
    with pytest.raises(InvalidArgument, match="user_id"):
        call(context={"user_id": "u7"})


def test_a_shipper_from_the_environment_is_named_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_SHIPPER", "off")
    with pytest.raises(
        InvalidArgument, match=r"^HEADSTART_SHIPPER must be process, thread or none"
    ):
        headstart.Emitter(KAFKA, spool=tmp_path)
    with pytest.raises(InvalidArgument, match=r"^shipper must be process, thread or none"):
        headstart.Emitter(KAFKA, spool=tmp_path, shipper="on")  # type: ignore[arg-type]
