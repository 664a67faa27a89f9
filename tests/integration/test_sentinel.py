"""A system whose Redis is named by Sentinels: the primary dies, and thresholds go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from headstart import Thresholds
from tests.patience import until
from tests.secured import stack_config
from tests.sentinels import Sentinels

pytestmark = [
    pytest.mark.integration,
    pytest.mark.any_broker,
    pytest.mark.plain_only(reason="the Sentinels of the test have no TLS"),
]

Event = dict[str, Any]
OUTCOMES = 5


@pytest.fixture
def own(broker: str, sentinels: Sentinels, messages: list[str], tmp_path: Path) -> Iterator[System]:
    config = stack_config(data=tmp_path / "own", kafka=broker, redis=sentinels.url)
    with System(config, partitions=2, echo=messages.append) as running:
        yield running


def test_thresholds_go_on_after_a_failover(
    own: System,
    sentinels: Sentinels,
    messages: list[str],
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    headstart: Any,
    tenant: str,
) -> None:
    at = own.addresses
    given = len(messages)

    def emit() -> None:
        events = [judged(tenant) for _ in range(OUTCOMES)]
        ended = headstart("emit", write_events(events), "--kafka", at.kafka)
        assert ended.returncode == 0, ended.stderr

    with Thresholds(at.redis, timeout_s=5.0) as reader:

        def outcomes() -> int:
            return reader.get(workflow_type="refund", tenant=tenant).outcomes

        emit()
        until(lambda: outcomes() == OUTCOMES, meanwhile=own.check, seen=outcomes)
        sentinels.fail_over()
        emit()
        until(lambda: outcomes() == 2 * OUTCOMES, meanwhile=own.check, seen=outcomes)
    assert not messages[given:], "no worker ended"

    where = ("--kafka", at.kafka, "--postgres", at.postgres, "--redis", at.redis)
    verified = headstart("verify", *where, "--json", "--caught-up")
    assert verified.returncode == 0, verified.stderr
    doctor = headstart("doctor", *where, "--data", own.data, "--json")
    found = [each for each in json.loads(doctor.stdout)["findings"] if each["check"] == "redis"]
    assert {each["level"] for each in found} == {"ok"}, found
    assert "secret" not in verified.stdout + verified.stderr + doctor.stdout + doctor.stderr
