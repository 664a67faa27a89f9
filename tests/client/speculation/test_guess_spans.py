"""The OpenTelemetry spans of guessed calls, as a real SDK exports them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

import headstart
from headstart.emitting.call_spans import CallSpans
from headstart.integrations.setup import SpeculationSetup
from headstart.speculation.agent_run import AgentRun
from headstart.speculation.calls import RequestedCall
from headstart.speculation.speculator import AsyncSpeculator
from headstart.speculation.thread_agent_run import ThreadAgentRun
from tests.client.speculation.scripted import TOOLS, Scripted
from tests.client.speculation.threads import speculating, until
from tests.client.speculation.turns import CONTEXT, Log, found, resolve, speculate, turn

PREFIX = "headstart.speculation."
OF_A_CALL = {
    "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search",
    "gen_ai.tool.type": "function", "user.id": "u7", "headstart.workflow_type": "refund",
    "headstart.workflow_id": "w1",
}  # fmt: skip
DECIDED = {
    f"{PREFIX}confidence": 0.9, f"{PREFIX}threshold": 0.8, f"{PREFIX}started": True,
    f"{PREFIX}action": "speculate", f"{PREFIX}mode": "act", f"{PREFIX}explored": False,
}  # fmt: skip


async def fails() -> str:
    raise LookupError("secret text")


async def marked() -> dict[str, object]:
    return {"isError": True}


async def hangs() -> str:
    await asyncio.sleep(60)
    return "never"


def exported_after(
    finished: Any, call: Callable[[], Any], tool: str = "search", **options: Any
) -> tuple[Any, Log]:
    """Return the one span of a turn with one guess, and what was logged."""
    logs: list[Log] = []

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        logs.append(log)
        async with turn(speculator, call) as trying:
            await asyncio.sleep(0.002)
            await resolve(trying, tool)

    speculate(test, **options)
    (span,) = finished()
    return span, logs[0]


def test_a_hit(finished: Any) -> None:
    span, log = exported_after(finished, found)
    attributes = dict(span.attributes)
    saved_ms = attributes.pop(f"{PREFIX}saved_ms")
    (end,) = log.of("task_complete")
    assert end["data"]["result"]["gain_ms"] == saved_ms
    assert attributes == {
        **OF_A_CALL, **DECIDED, f"{PREFIX}hit": True, "gen_ai.tool.call.id": "1",
        "headstart.task_id": end["task_id"],
    }  # fmt: skip
    assert span.name == "execute_tool search"
    assert span.status.is_ok
    took_ms = (span.end_time - span.start_time) / 1e6
    assert took_ms == pytest.approx(end["data"]["result"]["execution_time_ms"], abs=1e-3)


def test_a_wrong_guess(finished: Any) -> None:
    span, log = exported_after(finished, hangs, "pay")
    attributes = dict(span.attributes)
    (end,) = log.of("task_complete")
    assert attributes.pop(f"{PREFIX}wasted_ms") == end["data"]["result"]["cost_ms"] > 1.0
    task = {"headstart.task_id": end["task_id"]}
    assert attributes == {**OF_A_CALL, **DECIDED, **task, f"{PREFIX}hit": False}
    assert span.status.is_ok
    assert (span.end_time - span.start_time) / 1e6 > 1.0


@pytest.mark.parametrize(("call", "error"), [(fails, "LookupError"), (marked, "tool_error")])
def test_a_failed_call(finished: Any, call: Callable[[], Any], error: str) -> None:
    span, _ = exported_after(finished, call)
    attributes = dict(span.attributes)
    assert {name: attributes[f"{PREFIX}{name}"] for name in ("hit", "failed")} == {
        "hit": False, "failed": True,
    }  # fmt: skip
    assert attributes[f"{PREFIX}wasted_ms"] >= 0.0
    assert attributes["error.type"] == error
    assert not span.status.is_ok
    assert "secret" not in span.to_json()


def test_the_span_is_below_the_agents_and_above_those_of_the_tool(finished: Any) -> None:
    from opentelemetry import trace

    tracer = trace.get_tracer("agent")

    async def calls() -> str:
        with tracer.start_as_current_span("GET"):
            await asyncio.sleep(0)
        return "found"

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        with tracer.start_as_current_span("invoke_agent"):
            async with turn(speculator, calls) as trying:
                assert trace.get_current_span().name == "invoke_agent"
                assert (await resolve(trying)).hit

    speculate(test)
    spans = {span.name: span for span in finished()}
    assert spans["GET"].parent.span_id == spans["execute_tool search"].context.span_id
    above = spans["execute_tool search"].parent.span_id
    assert above == spans["invoke_agent"].context.span_id


def test_what_was_not_called_has_no_span(finished: Any) -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, found, confidence=0.1) as trying:
            await resolve(trying)

    speculate(test)
    assert finished() == ()


def test_unknown_outcomes_and_what_is_recorded(finished: Any) -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        left = turn(speculator, found)
        await left.start()
        left.close()

    speculate(test, spans=CallSpans(record_content=True))
    (span,) = finished()
    assert f"{PREFIX}hit" not in span.attributes
    assert span.attributes["gen_ai.tool.call.arguments"] == '{"query":"lights","limit":3}'
    assert span.attributes["gen_ai.tool.call.result"] == "found"
    speculate(test, spans=False)
    assert len(finished()) == 1


def test_the_runs_of_agents_and_threads(finished: Any) -> None:
    setup = SpeculationSetup("refund", read_only=["search"], emitter=Log(), spans=False)
    assert setup.speculator._spans is None

    async def make(tool: str, arguments: Mapping[str, object]) -> str:
        return tool

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        run = AgentRun[str](speculator, Scripted(("search", {})), CONTEXT, TOOLS, guess_s=30.0)
        run.model_started(make)
        assert await run.guessed() == 1
        await run.model_answered([RequestedCall("c1", "search", {})])["c1"].result()
        run.finished()

    speculate(test)
    with speculating() as (speculator, _):
        of_threads = ThreadAgentRun[str](
            speculator, Scripted(("search", {})), CONTEXT, TOOLS, guess_s=30.0
        )
        of_threads.model_started("{0}".format)
        assert of_threads.guessed() == 1
        match = of_threads.model_answered([RequestedCall("c2", "search", {})])["c2"]
        until(match._run.execution.future.done)
        assert match.result() == "search"
        of_threads.finished()
    assert [span.attributes["gen_ai.tool.call.id"] for span in finished()] == ["c1", "c2"]
    assert all(span.attributes[f"{PREFIX}hit"] for span in finished())


class Broken:
    """A provider whose tracers cannot be used."""

    def get_tracer(self, *args: object, **named: object) -> Any:
        return self

    def start_span(self, *args: object, **named: object) -> Any:
        raise OSError("no exporter")


def test_a_failure_of_opentelemetry_changes_nothing(
    finished: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", Broken())

    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        async with turn(speculator, found) as trying:
            assert (await resolve(trying)).hit

    assert speculate(test)["started"] == 1
    assert "a guessed call has no span: OSError('no exporter')" in caplog.text


def test_a_wrong_option_is_refused() -> None:
    async def test(speculator: AsyncSpeculator, log: Log) -> None:
        """Not reached."""

    with pytest.raises(headstart.speculation.speculator.InvalidArgument, match="spans must be"):
        speculate(test, spans="no")
