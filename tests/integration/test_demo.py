"""Acceptance: the demo as people run it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from tests.processes import run_command, wait_gone

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

FIELDS = {
    "events_emitted",
    "events_stored",
    "events_missing",
    "events_duplicated",
    "outcomes",
    "contexts",
    "thresholds_published",
    "read_p50_us",
    "read_p99_us",
    "event_to_threshold_p50_ms",
    "event_to_threshold_p99_ms",
    "hit_rate",
    "net_gain_s",
    "net_gain_always_s",
    "net_gain_never_s",
    "net_gain_fixed_s",
    "seconds",
}


def summary(ended: Any) -> dict[str, Any]:
    assert ended.returncode == 0, ended.stderr
    found = json.loads(ended.stdout.splitlines()[-1])
    assert found.keys() >= FIELDS
    assert found["broken"] == []
    assert found["events_emitted"] == found["events_stored"] > 0
    assert found["events_missing"] == found["events_duplicated"] == found["dead_letters"] == 0
    assert found["net_gain_never_s"] == 0
    memory = found["memory"]
    assert len(memory["cases"]) == 3
    assert memory["degraded"] == []
    assert 0 <= memory["worth"]["typical"]["edit"] <= 1
    assert "Retrieval, over the newest" in ended.stderr
    assert 0 <= found["read_p50_us"] <= found["read_p99_us"]
    assert 0 <= found["event_to_threshold_p50_ms"] <= found["event_to_threshold_p99_ms"]
    return found


def trace(number: int) -> dict[str, Any]:
    tools = ["find_user", "get_order", "issue_refund"] if number % 3 else ["find_user", "search"]
    steps = [{"tool": tool, "called_at": None, "returned_at": None, "error": False}
             for tool in tools]  # fmt: skip
    return {
        "source": "made",
        "domain": ("retail", "airline")[number % 2],
        "agent_model": "model",
        "task_id": str(number),
        "trial": None,
        "steps": steps,
    }


@pytest.fixture
def traces(tmp_path: Path) -> tuple[Path, int]:
    """Agent runs with a broken line, and how many calls the others have."""
    runs = [trace(number) for number in range(120)]
    lines = [json.dumps(run) for run in runs]
    lines.insert(7, '{"source": "made", "steps": [')
    path = tmp_path / "traces.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path, sum(len(run["steps"]) for run in runs)


def test_a_broken_line_is_refused_on_demand(
    headstart: Any, traces: tuple[Path, int], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    ended = headstart("demo", "--traces", traces[0], "--refuse-broken", "--data", data)
    assert ended.returncode == 1
    assert f"{traces[0]}, line 8: not JSON" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not data.exists(), "nothing was started for it"


@pytest.mark.plain_only(reason="Debian's Postgres has no pgvector: the demo's memory is degraded")
def test_the_traces_on_a_system_that_runs(
    system: System, headstart: Any, traces: tuple[Path, int]
) -> None:
    path, calls = traces
    ended = headstart("demo", "--traces", path, "--rate", "800", "--json", "--data", system.data)
    found = summary(ended)
    assert found["calls"] == calls
    assert f"{path}:8: not JSON" in ended.stderr
    assert "using the running system" in ended.stderr
    system.check()


@pytest.mark.plain_only(reason="`headstart demo` starts a stack without TLS")
def test_interrupted_twice_then_to_its_end(
    launch: Callable[..., Any],
    broker: str,
    tmp_path: Path,
) -> None:
    where = ("--data", tmp_path / "data", "--kafka", broker)
    for moment in ("starting the workers", "events emitted"):
        running = launch("demo", "--seconds", "60", *where)
        running.until(moment)
        children = running.descendants()
        assert len(children) >= 3
        assert running.end(signal.SIGINT) == 130
        wait_gone(children)
        assert "Traceback" not in running.err.read_text()

    html = tmp_path / "report.html"
    call = ("demo", "--seconds", "6", "--html", html, "--json", *where)
    of_another_broker = {
        "HEADSTART_KAFKA_SASL_MECHANISM": "PLAIN",
        "HEADSTART_KAFKA_SASL_USERNAME": "somebody",
        "HEADSTART_KAFKA_SASL_PASSWORD": "canary-secret",
    }
    ended = run_command(*call, folder=tmp_path, environment=of_another_broker)
    found = summary(ended)
    assert f"{html}: open it in a browser" in ended.stderr
    assert f"{found['predictions']:,} guessed tool calls" in html.read_text()
    assert "The memory: cases of earlier runs" in html.read_text()
    assert found["memory"]["degraded"] == []
    # One found by its words alone has no similarity.
    assert any(each["similarity"] for each in found["memory"]["cases"]), found["memory"]
    assert found["outcomes"] > 0
    assert found["thresholds_published"] > 0
    assert found["contexts"] > 0
    assert found["seconds"] >= 6
    assert "invariants hold" in ended.stderr
    assert "/s, " in ended.stderr, "no line of progress"
