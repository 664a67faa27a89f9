"""What the demo shows of the memory: requests, arguments, cases, and an honest sentence."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from demo.executor import Assignment, DemoWorkflow, Executor
from demo.memory import memory_lines, worth_sentence
from demo.memory_section import memory_section
from demo.requests import recorded_arguments, recorded_request, synthetic_request
from demo.synthetic_world import SyntheticRun
from demo.traces import TraceRun, read_runs
from tests.replay.recorded_runs import write_runs

WORK = Assignment("k", "r", "spool", "t", 7, 0, 1, 1e6, 0.6, 1.0, None, ("domain",))


def worth(delta: float, ends: list[float] | None) -> dict[str, Any]:
    figures = {"exact": 0.1, "next": 0.5, "edit": 0.4, "delta_edit": 0.0}
    own = figures | {"edit": 0.4 + delta, "delta_edit": delta, "delta_edit_interval": ends}
    return {"runs": 40, "typical": figures | {"delta_edit_interval": [0, 0]}, "memory": own}


def shown(**more: Any) -> dict[str, Any]:
    case = {
        "workflow_id": "w1", "query": "cancel <b>my</b> order", "similarity": 0.5,
        "tools": ["find", "cancel"], "outcome": "success",
    }  # fmt: skip
    return {
        "query": "cancel it", "workflow_type": "refund", "tools": ["find"], "cases": [case],
        "degraded": [], "worth": worth(0.1, [0.05, 0.15]), **more,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("delta", "ends", "verdict"),
    [
        (0.1, [0.05, 0.15], "it helped"),
        (0.0, [-0.02, 0.02], "it was worth nothing here"),
        (-0.1, [-0.2, -0.05], "it did harm"),
        (0.1, None, "too few tasks"),
    ],
)
def test_the_sentence_says_what_retrieval_was_worth(
    delta: float, ends: list[float] | None, verdict: str
) -> None:
    said = worth_sentence(worth(delta, ends))
    assert verdict in said
    assert f"{delta:+.3f}" in said


def test_cases_are_lines_and_without_any_the_reason_is_named() -> None:
    lines = memory_lines(shown())
    assert lines[0] == "memory: 1 cases retrieved for: cancel it"
    assert "(similarity 0.50): find > cancel; success" in lines[1]
    assert "HEADSTART_MEMORY" in memory_lines(shown(cases=[]))[0]
    assert memory_lines(shown(degraded=["no vectors"]))[0] == "memory: no vectors"


def test_the_section_escapes_requests() -> None:
    section = memory_section(shown())
    assert "cancel &lt;b&gt;my&lt;/b&gt; order" in section
    assert "it helped" in section
    assert "No case was found" in memory_section(shown(cases=[]))


def test_requests_name_the_domain() -> None:
    one, other = (
        SyntheticRun("refund", "travel", "u1", str(number), False, ()) for number in range(2)
    )
    assert synthetic_request(one) != synthetic_request(other)
    assert synthetic_request(one).endswith("(travel)")


@pytest.fixture
def recorded(tmp_path: Path) -> TraceRun:
    steps = [
        {"tool": "find", "args": {"id": 1.0}, "error": False, "user_before": [" ", "cancel it"]},
        {"tool": "cancel", "args": None, "error": False},
    ]
    run = {"source": "s", "domain": "d", "agent_model": "m", "task_id": "1", "steps": steps}
    return next(iter(read_runs(write_runs(tmp_path / "runs.jsonl", [run]), with_content=True)))


def test_recorded_runs_keep_their_request_and_arguments(recorded: TraceRun) -> None:
    assert recorded_request(recorded) == "cancel it"
    assert [recorded_arguments(recorded, place) for place in range(3)] == ['{"id":1}', None, None]
    assert recorded_arguments(None, 0) is None


def test_an_executor_emits_them(recorded: TraceRun) -> None:
    emitted: list[dict[str, Any]] = []

    class Emits:
        def emit(self, event: dict[str, Any]) -> None:
            emitted.append(event)

    class Never:
        def get(self, _task: object) -> SimpleNamespace:
            return SimpleNamespace(speculate=1.0, suggest=1.0)

        def mode(self, *_names: str) -> str:
            return "observe"

    executor = Executor(WORK, Emits(), Never())  # type: ignore[arg-type]
    flow = DemoWorkflow("s", "d", "m", recorded.steps, recorded, recorded_request(recorded))
    executor.execute(0, flow)
    calls = [each["data"].get("arguments") for each in emitted if "tool_id" in each]
    assert calls == ['{"id":1}', None]
    assert emitted[-1]["data"]["query"] == "cancel it"
