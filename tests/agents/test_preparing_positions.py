"""Partitions are opened again while a broker is away; no worker ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from aiokafka.errors import IllegalStateError, KafkaTimeoutError, NodeNotReadyError

from agents import app as apps
from agents.config import CannotOpenYet
from headstart.kafka_producer import BrokerUnreachable


class Ended(BaseException):
    """The process would have ended."""


class FakeApp:
    """Opens partitions; before that, each of its errors is raised once."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.consumer = SimpleNamespace(prepare_positions=self._prepare)
        self.consumer_generation_id = 1
        self.should_stop = self.rebalances = False
        self.health: Any = None

    async def _prepare(self) -> None:
        await asyncio.sleep(0)
        if self.rebalances:
            self.consumer_generation_id += 1
        if self.errors:
            raise self.errors.pop(0)


def prepared(app: Any) -> bool:
    return asyncio.run(apps._are_prepared(app, delays=[0.0]))


@pytest.fixture(autouse=True)
def _ending(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_where: str, error: BaseException) -> None:
        raise Ended from error

    monkeypatch.setattr(apps, "exit_fatally", end)


def test_partitions_are_opened_again_while_a_broker_is_away() -> None:
    away = BrokerUnreachable("a:1", NodeNotReadyError())
    lost = psycopg.OperationalError("the connection is closed")
    app = FakeApp(away, NodeNotReadyError(), KafkaTimeoutError(), TimeoutError(), lost)
    assert prepared(app)
    assert not app.errors


def test_not_after_the_group_rebalanced() -> None:
    app = FakeApp(NodeNotReadyError(), NodeNotReadyError())
    app.rebalances = True
    assert not prepared(app)
    assert len(app.errors) == 1
    assert not prepared(FakeApp(IllegalStateError("no assignment")))


def test_another_error_ends_the_process() -> None:
    with pytest.raises(Ended):
        prepared(FakeApp(KeyError(5)))


def test_partitions_are_opened_again_until_their_rows_are_there() -> None:
    reported: list[tuple[str, ...]] = []
    app = FakeApp(CannotOpenYet("the rows of partition 3", "start worker b"))
    app.health = SimpleNamespace(wait_for=lambda *what, reason: reported.append((*what, reason)))
    assert prepared(app)
    assert reported == [("the rows of partition 3", "start worker b")]
