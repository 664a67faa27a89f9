"""`SharedLearning`: mirrors snapshots from a real Redis, and goes on whatever becomes of it."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headstart.arguments.checks import InvalidArgument
from headstart.integrations.setup import SpeculationSetup
from headstart.keys import model_key
from headstart.prediction.interface import ToolCall
from headstart.prediction.predictor import CallPredictor
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.shared.shared_predictor import SharedCallPredictor
from headstart.shared_learning import shared_learning
from headstart.shared_learning.decision_emitter import DecisionEmitter
from headstart.shared_learning.shared_learning import SharedLearning, key_of_model
from headstart.shared_learning.snapshot_mirror import LARGEST_BYTES
from sinks.redis.models import ModelPublisher, delete_ahead, is_served, served_models
from tests.client.recording_emitter import Taken
from tests.client.redis_server import Server
from tests.patience import until

KEY = b"a secret of the tests"


def taught(turns: int) -> FleetModel:
    """What an executor has taught."""
    model = FleetModel()
    key = key_of_model(KEY, "acme", "refund")
    predictor = SharedCallPredictor(model.apply, hash_key=key)  # type: ignore[arg-type]
    for number in range(turns):
        run = predictor.run(user_id=f"u{number}")
        run.user(f"order W{number}0{number}")
        run.calls([ToolCall("find", {"order": f"W{number}0{number}"})])
    predictor.load(model.snapshot())  # gives what is asked for
    return model


LESS, MORE = taught(20), taught(21)


def publish(server: Server, offset: int, model: FleetModel, reset: tuple[int, int]) -> None:
    async def work() -> None:
        publisher = ModelPublisher(server.url)
        assert await publisher.publish("acme", "refund", (7, offset), reset, model.snapshot())
        await publisher.close()

    asyncio.run(work())


@pytest.fixture
def shared(server: Server, tmp_path: Path) -> Iterator[SharedLearning]:
    with SharedLearning(
        "127.0.0.1:1", server.url, hash_key=KEY, spool=tmp_path / "spool", shipper="none",
        poll_s=0.02,
    ) as found:  # fmt: skip
        yield found


def test_a_predictor_follows_what_is_published(server: Server, shared: SharedLearning) -> None:
    publish(server, 5, LESS, (0, -1))
    predictor = shared.predictor("refund", "acme")
    assert shared.wait("refund", "acme", timeout_s=60.0)
    assert predictor.events == LESS.version
    assert shared.predictor("refund", "acme") is predictor
    run = predictor.run(user_id="someone new")
    run.user("order W7707")
    assert run.guess(1)[0].tool == "find"
    publish(server, 9, MORE, (0, -1))
    until(lambda: predictor.events == MORE.version)
    publish(server, 12, FleetModel(), (7, 11))  # a reset
    until(lambda: predictor.events == 0)
    run = predictor.run()
    run.user("order W7707")
    assert not run.guess()


def test_an_older_snapshot_does_not_replace_a_newer_one(server: Server) -> None:
    async def work() -> None:
        publisher = ModelPublisher(server.url)
        for version, written in (((7, 5), True), ((7, 5), False), ((7, 4), False), ((8, -1), True)):
            assert await publisher.publish("a", "b", version, (0, -1), b"x") is written
        assert await publisher.versions([("a", "b"), ("a", "c")]) == [(8, -1), None]
        server.client.hset(model_key("a", "b"), "version", "damaged")
        assert await publisher.publish("a", "b", (7, 1), (0, -1), b"x")
        server.client.hset(model_key("a", "b"), "version", "7:99")
        assert not await publisher.publish("a", "b", (7, 2), (0, -1), b"x", wrong=(7, 98))
        assert await publisher.publish("a", "b", (7, 2), (0, -1), b"x", wrong=(7, 99))
        for odd in ("100000000000000000000:5", "7:0099", "07:9", "7:-5", "7:1" + "0" * 20):
            server.client.hset(model_key("a", "b"), "version", odd)
            assert await publisher.versions([("a", "b")]) == [None]
            assert await publisher.publish("a", "b", (7, 2), (0, -1), b"x")
        server.client.set(model_key("a", "c"), "of another type")
        assert await publisher.publish("a", "c", (7, 1), (0, -1), b"x")
        await publisher.close()

    asyncio.run(work())


def test_a_version_later_than_the_log_is_deleted(server: Server) -> None:
    async def work() -> None:
        for version in ("7:2", "damaged"):
            server.client.hset(model_key("a", "b"), "version", version)
            assert await delete_ahead(server.url, "a", "b", (7, 3)) is None
            assert server.client.exists(model_key("a", "b"))
        for version in ((7, 3), (9_999_999_999, 5)):
            server.client.hset(model_key("a", "b"), "version", "{}:{}".format(*version))
            assert await delete_ahead(server.url, "a", "b", (7, 3)) == version
            assert not server.client.exists(model_key("a", "b"))
        server.client.set(model_key("a", "c"), "of another type")
        assert await delete_ahead(server.url, "a", "c", (7, 3)) is None

    asyncio.run(work())


def test_models_are_listed_without_their_snapshots(server: Server) -> None:
    publish(server, 5, LESS, (0, -1))
    server.client.set(model_key("acme", "other"), "no hash")

    async def work() -> None:
        (whole,) = await served_models(server.url)
        (listed,) = await served_models(server.url, snapshots=False)
        assert len(whole.snapshot) == whole.size > 0
        assert listed == whole._replace(snapshot=b"")
        assert await is_served(server.url, "acme", "refund")
        assert not await is_served(server.url, "acme", "none")
        assert not await is_served(server.url, "acme", "other")

    asyncio.run(work())


def test_a_lost_or_damaged_snapshot_is_not_used(
    server: Server, shared: SharedLearning, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    publish(server, 5, LESS, (0, -1))
    predictor = shared.predictor("refund", "acme")
    assert shared.wait("refund", "acme", timeout_s=60.0)
    key = model_key("acme", "refund")
    newer = b"headstart-shared-model 9\n" + b"?"
    for number, damaged in enumerate((b"damaged", newer)):
        caplog.clear()
        server.client.hset(key, mapping={"snapshot": damaged, "version": f"7:{10 + number}"})
        until(lambda: "cannot use the snapshot" in caplog.text)
        assert predictor.events == LESS.version
    server.client.delete(key)
    caplog.clear()
    server.stop()
    until(lambda: "gives no shared models" in caplog.text)
    assert predictor.run().guess() is not None
    assert predictor.events == LESS.version
    server.start()
    publish(server, 20, MORE, (0, -1))
    until(lambda: predictor.events == MORE.version)


def test_a_snapshot_of_another_tenant_is_not_used(
    server: Server, shared: SharedLearning, caplog: pytest.LogCaptureFixture
) -> None:
    publish(server, 5, LESS, (0, -1))
    fields = server.client.hgetall(model_key("acme", "refund"))
    for tenant, workflow_type in (("other", "refund"), ("acme", "cancel")):
        server.client.hset(model_key(tenant, workflow_type), mapping=fields)
        predictor = shared.predictor(workflow_type, tenant)
        assert shared.wait(workflow_type, tenant, timeout_s=60.0)
        assert predictor.events == 0
    assert caplog.text.count("for another tenant or workflow type") == 2


def test_a_huge_snapshot_is_not_read(
    server: Server, shared: SharedLearning, caplog: pytest.LogCaptureFixture
) -> None:
    key = model_key("acme", "refund")
    huge = {"snapshot": b"x" * (LARGEST_BYTES + 1), "version": "7:10"}
    server.client.hset(key, mapping=huge)
    predictor = shared.predictor("refund", "acme")
    until(lambda: f"has {LARGEST_BYTES + 1} bytes" in caplog.text)
    publish(server, 20, LESS, (0, -1))
    until(lambda: predictor.events == LESS.version)


def test_a_reset_before_the_first_look_is_one_too(server: Server, tmp_path: Path) -> None:
    """What was learned while Redis was away may be from before the reset."""
    server.stop()
    with SharedLearning(
        "127.0.0.1:1", server.url, hash_key=KEY, spool=tmp_path, shipper="none", poll_s=0.02
    ) as shared:
        predictor = shared.predictor("refund", "acme")
        run = predictor.run(user_id="u")
        run.calls([ToolCall("find", {"order": "W1"})])
        assert predictor._own.kept
        server.start()
        publish(server, 12, FleetModel(), (7, 11))
        until(lambda: not predictor._own.kept)


def test_a_key_of_another_type_stops_no_other_model(
    server: Server, shared: SharedLearning, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    server.client.set(model_key("acme", "a"), "no hash")
    shared.predictor("a", "acme")
    predictor = shared.predictor("refund", "acme")
    publish(server, 5, LESS, (0, -1))
    assert shared.wait("a", "acme", timeout_s=60.0)
    until(lambda: predictor.events == LESS.version)
    publish(server, 9, MORE, (0, -1))
    until(lambda: predictor.events == MORE.version)
    assert caplog.text.count("cannot be read") == 1
    assert "gives no shared models" not in caplog.text


def test_a_fork_goes_on_with_a_thread_of_its_own(server: Server, shared: SharedLearning) -> None:
    publish(server, 5, LESS, (0, -1))
    predictor = shared.predictor("refund", "acme")
    assert shared.wait("refund", "acme", timeout_s=60.0)
    child = os.fork()
    if child == 0:
        try:
            until(lambda: predictor.events == MORE.version)
            os._exit(0)
        finally:
            os._exit(1)
    publish(server, 9, MORE, (0, -1))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_nothing_waits_for_a_redis_that_is_away(tmp_path: Path) -> None:
    with SharedLearning(
        "127.0.0.1:1", "redis://127.0.0.1:1/0", hash_key=KEY, spool=tmp_path, shipper="none"
    ) as shared:
        run = shared.predictor("refund").run(user_id="u")
        run.user("order W1")
        run.guess()
        run.calls([ToolCall("find", {"order": "W1"})])
        assert not shared.wait("refund", timeout_s=0.01)
    shared.close()
    assert not [each for each in threading.enumerate() if each.name == "headstart-snapshots"]


def test_a_spool_that_cannot_be_written_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    emitter = DecisionEmitter("127.0.0.1:1", spool=tmp_path / "file", shipper="none")
    for _ in range(2):
        emitter.emit({"event_type": "call_decision"}, "acme", "refund")
    assert caplog.text.count("decisions are not emitted") == 1
    emitter.close()


def test_the_spool_is_beside_that_of_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_SPOOL", str(tmp_path / "spool"))
    emitter = DecisionEmitter("127.0.0.1:1", shipper="none")
    emitter.emit({"event_type": "call_decision"}, "acme", "refund")
    emitter.close()
    assert [each.name for each in tmp_path.iterdir()] == ["spool-decisions"]


@pytest.mark.parametrize("key", [None, "", "short", b"x" * 65, 7])
def test_a_key_that_cannot_be_used_is_named(key: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADSTART_HASH_KEY", raising=False)
    with pytest.raises(InvalidArgument, match="hash_key"):
        SharedLearning("127.0.0.1:1", hash_key=key)


def test_a_set_up_shares_by_an_argument_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADSTART_SPOOL", str(tmp_path / "spool"))
    monkeypatch.setenv("HEADSTART_SHIPPER", "none")
    monkeypatch.setenv("HEADSTART_REDIS", "redis://127.0.0.1:1/0")
    monkeypatch.setattr(shared_learning, "_shared", None)
    given: dict[str, Any] = {"tenant": "acme", "emitter": Taken(tmp_path)}
    with pytest.raises(InvalidArgument, match="HEADSTART_HASH_KEY"):
        SpeculationSetup("refund", shared_learning=True, **given)
    with pytest.raises(InvalidArgument, match="leave predictor out"):
        SpeculationSetup("refund", shared_learning=True, predictor=CallPredictor(), **given)
    with pytest.raises(InvalidArgument, match="shared_learning must be"):
        SpeculationSetup("refund", shared_learning=7, **given)
    monkeypatch.setenv("HEADSTART_SHARED_LEARNING", "yes")
    with pytest.raises(InvalidArgument, match="HEADSTART_SHARED_LEARNING"):
        SpeculationSetup("refund", **given)
    monkeypatch.setenv("HEADSTART_SHARED_LEARNING", "1")
    monkeypatch.setenv("HEADSTART_HASH_KEY", KEY.decode())
    setup = SpeculationSetup("refund", **given)
    made = shared_learning.process_shared_learning()
    assert setup._predictor_of({"tenant": "acme", "workflow_type": "refund"}) is (
        made.predictor("refund", "acme")
    )
    alone = SpeculationSetup("refund", predictor=CallPredictor(), **given)
    assert isinstance(alone._predictor_of({}), CallPredictor)
    made.close()
