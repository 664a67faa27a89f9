"""`headstart tune --apply` on a running system: what wins learns there from the next outcome on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from learners.policy import spec
from learners.registry import policy
from topics.catalogue import EVENTS
from topics.control.messages import CONTROL_HEADER

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]
PATTERN = "workflow_type=refund"


@pytest.fixture
def emitted(
    system: System,
    headstart: Any,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    stored: Any,
    tenant: str,
) -> Callable[[int], None]:
    """Emit predictions that were all right, each of a workflow of its own, a second apart."""

    def emit(count: int) -> None:
        begin = time.time_ns() // 1_000_000 - 1_000 * count
        data = {
            "prediction": {"was_correct": True, "speculated": False},
            "result": {"gain_ms": 100.0, "cost_ms": 100.0},
        }
        events = [
            judged(tenant, kind, workflow_id=f"w{number}", timestamp=begin + 1_000 * number,
                   confidence=0.8, data=data)
            for number in range(count) for kind in ("refund", "order")
        ]  # fmt: skip
        before = stored.counted("refund").get(PATTERN, 0)
        ended = headstart("emit", write_events(events), "--kafka", system.addresses.kafka)
        assert ended.returncode == 0, ended.stderr
        stored.until(lambda: stored.counted("refund").get(PATTERN) == before + count, 600)

    return emit


def test_the_winner_is_sent_and_learns_there_and_nowhere_else(
    system: System,
    headstart: Any,
    emitted: Callable[[int], None],
    read_topic: Callable[..., list[Any]],
    tenant: str,
) -> None:
    at = system.addresses
    kafka = ("--kafka", at.kafka)
    emitted(300)
    tune = ("tune", "--policy", "fixed:.6", "--learner", "never", "--tenant", tenant,
            "--apply", PATTERN, *kafka, "--json")  # fmt: skip

    def choices() -> list[Any]:
        listed = headstart("learner", "list", *kafka, "--json")
        return [e for e in json.loads(listed.stdout)["choices"] if e["tenant"] == tenant]

    for more, code in ((("--dry-run",), 0), ((), 1)):  # asked, without an answer
        ended = headstart(*tune, *more, stdin="n\n", seconds=900)
        assert ended.returncode == code, ended.stderr
        assert "fixed:" in ended.stderr
    assert choices() == []

    ended = headstart(*tune, "--yes", seconds=900)
    assert ended.returncode == 0, ended.stderr
    output = json.loads(ended.stdout)
    assert output["better"]
    applied = output["applied"]
    assert (applied["pattern"], len(applied["offsets"])) == (PATTERN, 4)
    mine = [
        record for record in read_topic(EVENTS.name)
        if dict(record.headers).get(CONTROL_HEADER) and applied["id"].encode() in record.value
    ]  # fmt: skip
    assert {str(record.partition): record.offset for record in mine} == applied["offsets"]
    assert {json.loads(record.value)["tenant"] for record in mine} == {tenant}

    def shown(kind: str) -> dict[str, Any]:
        ended = headstart("thresholds", "show", "--workflow-type", kind, "--tenant", tenant,
                          "--redis", at.redis, "--json")  # fmt: skip
        found: dict[str, Any] = json.loads(ended.stdout)
        return found

    assert shown("refund")["learner"] == "hops"  # until an outcome comes
    emitted(1)
    learner = spec(policy(output["winner"]))
    assert (shown("refund")["learner"], shown("refund")["speculate"]) == (learner, 0.6)
    assert shown("order")["learner"] == "hops"
    (choice,) = choices()
    assert (choice["pattern"], choice["learner"], choice["partitions"]) == (
        PATTERN, output["winner"], 4,
    )  # fmt: skip
    assert system.drain(600.0)
    verified = headstart("verify", *kafka, "--postgres", at.postgres, "--redis", at.redis, "--json")
    assert json.loads(verified.stdout)["counts"] == {}, verified.stderr
