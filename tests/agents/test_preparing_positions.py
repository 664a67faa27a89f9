"""Partitions are opened again while a broker is away; no worker ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from aiokafka.consumer.subscription_state import SubscriptionState
from aiokafka.errors import IllegalStateError, KafkaTimeoutError, NodeNotReadyError

from agents import app as apps
from agents.config import CannotOpenYet
from agents.consumer.faust_transport import ConsumerThread
from headstart.kafka_producer import BrokerUnreachable


class Ended(BaseException):
    """The process would have ended."""


class FakeApp:
    """Opens partitions; before that, each of its errors is raised once."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.put_out, self.kept, self.closed = False, 0, False
        self.consumer: Any = SimpleNamespace(
            prepare_positions=self._prepare, is_member=True, keep_membership=self._keep
        )
        self.consumer_generation_id = 1
        self.should_stop = self.rebalances = False
        self.health: Any = None

    def _keep(self) -> None:
        self.kept += 1

    async def drain_queues(self) -> None:
        self.closed = True

    async def _prepare(self) -> None:
        await asyncio.sleep(0)
        self.consumer.is_member = not self.put_out
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


def test_a_worker_that_waits_stays_in_its_group() -> None:
    """Of a member that fetches nothing aiokafka ends the membership after ten minutes."""
    app = FakeApp(NodeNotReadyError(), NodeNotReadyError(), NodeNotReadyError())
    assert prepared(app)
    assert app.kept == 4, "before each attempt"


@pytest.mark.parametrize("errors", [[NodeNotReadyError(), NodeNotReadyError()], []])
def test_partitions_do_not_stay_open_once_the_group_has_put_the_worker_out(
    errors: list[Exception],
) -> None:
    """Others may have them. The generation stays the same until it has joined again."""
    app = FakeApp(*errors)
    app.put_out = True
    assert not prepared(app)
    assert len(app.errors) == max(0, len(errors) - 1), "it does not try again"
    assert app.closed is (not errors), "what was opened meanwhile is closed"
    assert app.kept == 2, "else aiokafka would wait for a fetch before it joins again"


def test_to_stay_in_the_group_counts_for_aiokafka_as_a_fetch() -> None:
    async def idle_s() -> tuple[float, float]:
        subscription = SubscriptionState()
        subscription._last_fetch_ended -= 700.0
        before = subscription.fetcher_idle_time
        thread: Any = SimpleNamespace(_consumer=SimpleNamespace(_subscription=subscription))
        ConsumerThread.keep_membership(thread)
        return before, subscription.fetcher_idle_time

    before, after = asyncio.run(idle_s())
    assert before >= 700.0
    assert after < 600.0
