"""What is read of `headstart.models`, with records in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from cli.support.options import SettingOptions
from cli.system.topics import delete, restarting
from headstart.keys import event_key
from headstart.partitioner import partition_for_key
from topics.catalogue import MODELS
from topics.epoch import Epoch
from topics.kafka.admin import TopicsMissing
from topics.kafka.topic_states import TopicState
from topics.models import log
from topics.models.records import (
    FORMAT,
    MARKER_KEY,
    NO_RESET,
    StoredModel,
    encode_marker,
    encode_model,
)

KEY, OTHER = event_key("acme", "refund"), event_key("beta", "refund")
PLACE = partition_for_key(KEY, 2)


def test_models_are_listed_without_their_states(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [
        (KEY, encode_model(7, 3, NO_RESET, b"first")),
        (KEY, encode_model(7, 5, NO_RESET, b"the second")),
        (KEY, b"damaged"),
        *[
            (key, encode_model(7, 9, NO_RESET, b""))
            for key in (None, b"", b"no tenant", b"\xff\x1fa")
        ],
        (OTHER, encode_model(7, 9, NO_RESET, b"of another partition")),
        (MARKER_KEY, encode_marker(7, 6, {KEY: 5})),
    ]
    asked: list[Mapping[int, int]] = []

    async def state(*_where: str) -> TopicState:
        return TopicState(MODELS.name, 2, {0: 0, 1: 0}, {0: len(records), 1: 9})

    async def read(
        _kafka: str, _topic: str, _begin: Mapping[int, int], end: Mapping[int, int]
    ) -> AsyncIterator[Any]:
        asked.append(end)
        for key, value in records:
            yield SimpleNamespace(key=key, value=value, partition=PLACE, timestamp=1)

    async def minted(_kafka: str) -> tuple[Epoch, int]:
        return Epoch(7, 2), 2

    monkeypatch.setattr(log, "read_minted_epoch", minted)
    monkeypatch.setattr(log, "topic_state", state)
    monkeypatch.setattr(log, "read_records", read)
    states = asyncio.run(log.read_states("kafka"))
    assert [each.model.state for each in states] == [b"first", b"the second"]
    (found,) = asyncio.run(log.read_models("kafka", [0]))
    assert (found.tenant, found.workflow_type, found.model.offset) == ("acme", "refund", 5)
    (whole,) = asyncio.run(log.read_models("kafka", [0], states=True))
    assert whole.model.state == b"the second"
    assert (found.model.state, found.size) == (b"", len(b"the second"))
    assert asked == [{0: len(records), 1: 9}, *[{0: len(records)}] * 2]


def test_models_that_learned_something_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(tenant: str, state: bytes) -> log.FoundModel:
        model = StoredModel(FORMAT, 7, 3, NO_RESET, b"")
        return log.FoundModel(event_key(tenant, "refund"), 0, 1, model, len(state))

    async def read(_kafka: str) -> list[log.FoundModel]:
        return [found("acme", b"state"), found("blue", b""), found("coral", b"state")]

    async def missing(_kafka: str) -> list[log.FoundModel]:
        raise TopicsMissing("kafka", [MODELS.name])

    monkeypatch.setattr(log, "read_models", read)
    assert asyncio.run(log.count_models("kafka")) == 2
    monkeypatch.setattr(log, "read_models", missing)
    assert asyncio.run(log.count_models("kafka")) == 0


@pytest.mark.parametrize("yes", [False, True])
def test_a_deletion_first_reports_the_shared_models(
    yes: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def counted(_kafka: str) -> int:
        return 3

    async def named(*_args: object, **_more: object) -> dict[str, int]:
        assert "3 shared models begin again from nothing" in capsys.readouterr().err
        return {MODELS.name: 8}

    monkeypatch.setattr(log, "count_models", counted)
    monkeypatch.setattr("topics.kafka.admin.partition_counts", named)
    monkeypatch.setattr("cli.system.topic_deletion.delete_log", named)
    delete(yes, options=SettingOptions(), json=False)
    assert restarting(1).count("1 shared model begins again") == 1
