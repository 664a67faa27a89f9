"""Another learner chosen while the workers run: in every partition, from its offset on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from tests.patience import PATIENCE_S
from topics.catalogue import EVENTS
from topics.control.messages import CONTROL_HEADER

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]
PATH = "workflow_type=refund"


def test_a_choice_reaches_every_partition_and_the_next_outcomes_follow_it(
    system: System,
    headstart: Any,
    judged: Callable[..., Event],
    write_events: Callable[[Sequence[Event]], Path],
    read_topic: Callable[..., list[Any]],
    stored: Any,
    tenant: str,
) -> None:
    at = system.addresses
    kafka = ("--kafka", at.kafka)
    kinds = [f"{kind}-{number}" for number in range(8) for kind in ("refund", "order")]
    before = [judged(tenant, kind) for kind in kinds]
    assert headstart("emit", write_events(before), *kafka).returncode == 0
    ended = headstart(
        "learner", "choose", "*", "ema:alpha=.1", "--tenant", tenant, *kafka, "--json"
    )
    assert ended.returncode == 0, ended.stderr
    output = json.loads(ended.stdout)
    controls = [
        record for record in read_topic(EVENTS.name) if dict(record.headers).get(CONTROL_HEADER)
    ]
    mine = [record for record in controls if output["id"].encode() in record.value]
    offsets = {str(record.partition): record.offset for record in mine}
    assert offsets == output["offsets"]
    assert len(offsets) == 4

    after = [judged(tenant, kind) for kind in kinds[:4]]
    assert headstart("emit", write_events(after), *kafka).returncode == 0
    stored.until(lambda: sum(stored.counted(*kinds).values()) == 2 * (16 + 4))
    served = stored.served(*kinds)
    followed = {path for path, value in served.items() if value["learner"] == "ema:alpha=0.1"}
    assert followed == {path for path, value in served.items() if value["outcomes"] == 2}
    assert {value["learner"] for value in served.values()} == {"hops", "ema:alpha=0.1"}

    listed = json.loads(headstart("learner", "list", *kafka, "--json").stdout)
    (choice,) = [each for each in listed["choices"] if each["tenant"] == tenant]
    assert (choice["pattern"], choice["learner"], choice["partitions"]) == ("*", "ema:alpha=0.1", 4)

    places = ("--postgres", at.postgres, "--redis", at.redis)
    assert system.drain(PATIENCE_S)
    verified = headstart("verify", *kafka, *places, "--json")
    assert json.loads(verified.stdout)["counts"] == {}, verified.stderr


def test_an_invalid_pattern_or_policy_is_refused_before_anything_is_sent(
    system: System, headstart: Any
) -> None:
    kafka = ("--kafka", system.addresses.kafka)
    for arguments, why in (
        (("refund", "ema"), "key=value parts"),
        (("*", "guess"), "there is no policy 'guess'"),
        (("*",), "--back"),
    ):
        ended = headstart("learner", "choose", *arguments, *kafka)
        assert ended.returncode != 0
        assert why in ended.stderr
