"""The topics recreated while executors emit: everything is learned and stored once, also if the
command is killed behind any of its steps."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from console.inspection.doctor.broker import check_broker
from deploy.supervisor import Supervisor
from deploy.system import System
from headstart import Emitter
from headstart.kafka_producer import start_producer
from headstart.keys import event_key
from headstart.partitioner import partition_for_key
from headstart.shipping import producer_connection
from replay.backup.manifest import read_manifest
from replay.backup.restored_log import WorkersRun
from replay.recreation.held_producers import StillWritten, require_no_members
from replay.recreation.run import GROUPS, RecreationTarget, recreate_log
from replay.recreation.saved_log import RECREATED
from tests.integration import recreation_run
from tests.patience import PATIENCE_S, until
from tests.secured import everything_allowed, logins, stack_config
from topics.catalogue import DECISIONS, EVENTS, MODELS
from topics.epoch import LogInRecreation, Recreation, read_epoch, read_log_state
from topics.kafka.admin import admin_client, partition_counts
from topics.kafka.reader import read_records, topic_state
from topics.kafka.topic_copies import TopicCopy, describe_copies
from topics.models.records import decode_model, encode_model

pytestmark = pytest.mark.integration

Event = dict[str, Any]
TYPES = [f"type-{number}" for number in range(8)]
PARTITIONS = 4
KILLED_BEHIND = ("hold_producers", "save_log", "delete_topics", "write_rows")


@pytest.fixture
def own(broker: str, tmp_path: Path) -> Iterator[System]:
    if broker != "apache":
        pytest.skip("the embedded broker's log is not recreated, and others are not ours to change")
    config = stack_config(data=tmp_path / "own", kafka=broker)
    with System(config, partitions=PARTITIONS, workers=False) as running:
        yield running


@contextmanager
def working(system: System) -> Iterator[Workers]:
    """Run two threshold workers, each with a data directory of its own."""
    at = system.addresses
    environment = {
        "HEADSTART_KAFKA": at.kafka,
        "HEADSTART_POSTGRES": at.postgres,
        "HEADSTART_REDIS": at.redis,
    }
    with ExitStack() as stack:
        started = []
        for instance, names in (
            ("0", ("episodes", "thresholds", "history")),
            ("1", ("thresholds",)),
        ):
            data = data_of(system, instance)
            more = {"HEADSTART_DATA": str(data), "HEADSTART_INSTANCE": instance}
            given = (data / "workers", environment | more, names, logins(at))
            started.append(Supervisor(*given))
            started[-1].start()
            stack.callback(started[-1].stop)
        yield Workers(started)


class Workers:
    """Workers of several instances, under supervision."""

    def __init__(self, supervisors: Sequence[Supervisor]) -> None:
        self._supervisors = supervisors

    @property
    def ready(self) -> bool:
        return all(each.ready for each in self._supervisors)

    def check(self) -> None:
        for each in self._supervisors:
            each.check()

    def wait_ready(self) -> None:
        until(lambda: self.ready, meanwhile=self.check)


def data_of(system: System, instance: str) -> Path:
    return system.data / f"instance-{instance}"


class Load:
    """Emits events until it is stopped, through spools of its own."""

    def __init__(self, kafka: str, spool: Path, event: Callable[[int], Event]) -> None:
        self._ended, self._event = threading.Event(), event
        self._emitter = Emitter(kafka, spool=spool)
        self._thread = threading.Thread(target=self._run)
        self.emitted: list[Event] = []

    def burst(self, count: int) -> None:
        for _ in range(count):
            event = self._event(len(self.emitted))
            self._emitter.emit(event)
            self.emitted.append(event)

    def _run(self) -> None:
        while not self._ended.wait(0.05):
            self.burst(5)

    def __enter__(self) -> Load:
        self.burst(2_000)
        self._thread.start()
        return self

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._emitter.close()


async def set_retention(kafka: str) -> None:
    """Give the events a setting of this installation's own."""
    settings = {**EVENTS.configuration(), "retention.ms": "7777777"}
    async with admin_client(kafka) as client:
        await client.alter_configs(
            [ConfigResource(ConfigResourceType.TOPIC, EVENTS.name, configs=settings)]
        )


KEY = event_key("t", "modelled")


async def write_model(kafka: str, epoch: int) -> None:
    """Write two decisions, and the state of a model that has learned from the first."""
    partition = partition_for_key(KEY, PARTITIONS)
    producer = await start_producer(kafka)
    try:
        for value in (b"first", b"second"):
            sent = await producer.send_and_wait(DECISIONS.name, value, key=KEY, partition=partition)
        model = encode_model(epoch, sent.offset - 1, (0, -1), b"learned")
        await producer.send_and_wait(MODELS.name, model, key=KEY, partition=partition)
    finally:
        await producer.stop()


async def values_of(kafka: str, topic: str) -> list[bytes]:
    state = await topic_state(kafka, topic)
    return [each.value async for each in read_records(kafka, topic, state.begin, state.end)]


def killed(system: System, folder: Path, step: str) -> None:
    """Run the recreation in a process that dies behind a step."""
    at = system.addresses
    words = (at.kafka, at.postgres, at.redis, str(folder), step)
    ended = subprocess.run(
        [sys.executable, "-m", recreation_run.__name__, *words],
        capture_output=True, text=True, check=False, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.returncode == recreation_run.KILLED, ended.stderr


async def refused_while_something_writes(system: System, folder: Path) -> None:
    """A client that does not wait: nothing is deleted, and the log goes on."""
    at = system.addresses
    before = await read_epoch(at.kafka)

    async def write() -> None:
        producer = await start_producer(at.kafka)
        try:
            while True:
                await producer.send_and_wait(EVENTS.name, b"[]", key=b"other", partition=0)
                await asyncio.sleep(0.05)
        finally:
            await producer.stop()

    writing = asyncio.create_task(write())
    target = RecreationTarget(at.kafka, at.postgres, at.redis, "test", hold_s=0.5)
    try:
        with pytest.raises(StillWritten, match=EVENTS.name):
            await recreate_log(target, folder, lambda _line: None)
    finally:
        writing.cancel()
        await asyncio.gather(writing, return_exceptions=True)
    assert await read_epoch(at.kafka) == before
    assert await asyncio.to_thread(folder.exists) is False


class Scene:
    """A system, its places as options, and what is stored of one tenant."""

    def __init__(self, system: System, folder: Path, tenant: str, stored_at: Any) -> None:
        self.system, self.folder, self.tenant = system, folder, tenant
        self.kafka, self._stored_at = system.addresses.kafka, stored_at
        at = system.addresses
        self.places = ("--kafka", at.kafka, "--postgres", at.postgres, "--redis", at.redis)
        options = ("--data", system.data, "--to", folder, "--json")
        self.recreate = ("topics", "recreate", *self.places, *options)

    def stored(self, check: Callable[[], None]) -> Any:
        return self._stored_at(vars(self.system.addresses), self.tenant, check)

    def copies(self) -> list[TopicCopy]:
        return asyncio.run(describe_copies(self.kafka, RECREATED, PARTITIONS))


@pytest.fixture
def scene(own: System, stored_at: Any, tenant: str, tmp_path: Path) -> Scene:
    return Scene(own, tmp_path / "saved", tenant, stored_at)


@pytest.fixture
def load(
    scene: Scene, judged: Callable[..., Event], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Load]:
    # The shipper of this process notices within a second what takes others half a minute.
    monkeypatch.setattr(producer_connection, "METADATA_S", 1.0)

    def event(number: int) -> Event:
        return judged(scene.tenant, TYPES[number % len(TYPES)], user_id=f"u{number % 40}")

    with Load(scene.kafka, tmp_path / "spool", event) as running:
        yield running


def test_the_log_is_recreated_under_load_and_the_command_is_killed_behind_each_step(
    scene: Scene,
    load: Load,
    headstart: Any,
    counts: Callable[[Sequence[Event]], dict[str, int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    kafka, system = scene.kafka, scene.system
    caplog.set_level(logging.WARNING, "headstart")
    with everything_allowed(system.data):
        asyncio.run(set_retention(kafka))
    before = asyncio.run(read_epoch(kafka))
    with working(system) as workers:
        workers.wait_ready()
        stored = scene.stored(workers.check)
        stored.until(lambda: len(stored.ids()) >= 2_000)
        refused = headstart(*scene.recreate, "--yes", "--data", data_of(system, "0"))
        assert refused.returncode == 1
        assert "thresholds (process" in refused.stderr
        with pytest.raises(WorkersRun, match="stop them on every host"):
            asyncio.run(require_no_members(kafka, GROUPS, 0.0))
    asyncio.run(write_model(kafka, before.number))
    planned = headstart(*scene.recreate)
    assert json.loads(planned.stdout)["done"] is False
    asyncio.run(refused_while_something_writes(system, scene.folder))
    copies = scene.copies()
    assert copies[0].settings["retention.ms"] == "7777777"

    for step in KILLED_BEHIND:
        killed(system, scene.folder, step)
        assert isinstance(asyncio.run(read_log_state(kafka)), Recreation)
    with pytest.raises(LogInRecreation):
        asyncio.run(read_epoch(kafka))
    assert system._prepared_unless_recreated() is None  # as `up --no-workers` goes on
    findings, _log = asyncio.run(check_broker(kafka))
    assert [each for each in findings if each.remedy and "topics recreate --yes" in each.remedy]
    shutil.rmtree(data_of(system, "1"))  # one worker has what it had, the other one nothing
    with working(system) as workers:  # they wait
        done = headstart(*scene.recreate, "--yes")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["epoch"] > before.number
        assert read_manifest(scene.folder).epoch == before.number
        assert scene.copies() == copies
        found = asyncio.run(partition_counts(kafka, [EVENTS.name, DECISIONS.name]))
        assert {*found.values()} == {PARTITIONS}
        assert asyncio.run(values_of(kafka, DECISIONS.name)) == [b"second"]
        (model,) = map(decode_model, asyncio.run(values_of(kafka, MODELS.name)))
        assert (model.epoch, model.state) == (before.number, b"learned")
        workers.wait_ready()
        after = scene.stored(workers.check)
        load.burst(1_000)
        load.stop()
        ids = sorted(each["id"] for each in load.emitted)
        after.until(lambda: after.ids() == ids and after.counted(*TYPES) == counts(load.emitted))
        verified = headstart("verify", *scene.places, "--caught-up")
        assert verified.returncode == 0, verified.stdout + verified.stderr
    assert [line for line in caplog.messages if "is being recreated; events wait" in line]


@pytest.mark.any_broker
def test_the_log_of_an_embedded_broker_is_not_recreated(
    system: System, broker: str, headstart: Any, tmp_path: Path
) -> None:
    if broker != "embedded":
        pytest.skip("about the embedded broker")
    at = system.addresses
    places = ("--kafka", at.kafka, "--postgres", at.postgres, "--redis", at.redis)
    refused = headstart("topics", "recreate", *places, "--data", tmp_path / "other", "--yes")
    assert refused.returncode == 1
    assert "end with `headstart up`" in refused.stderr


def test_a_log_that_no_worker_has_opened_is_recreated(own: System, tmp_path: Path) -> None:
    at = own.addresses
    target = RecreationTarget(at.kafka, at.postgres, at.redis, "test", hold_s=1.0)
    done = asyncio.run(recreate_log(target, tmp_path / "saved", print))
    assert done.rows == dict.fromkeys(range(PARTITIONS), 1)
    assert asyncio.run(read_epoch(at.kafka)).number == done.epoch
