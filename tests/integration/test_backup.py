"""The drill: a backup under load, everything lost, a restore, and the same rows and thresholds."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from deploy.supervisor import Supervisor
from deploy.system import System
from headstart import Emitter
from replay.backup import restored_log
from replay.backup.manifest import read_manifest
from replay.backup.restore import RestoreTarget, restore_backup
from tests.patience import PATIENCE_S, until
from tests.secured import logins, stack_config
from topics.catalogue import EVENTS
from topics.kafka.reader import read_records, topic_state

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]
TYPES = ["refund", "order", "search"]
PARTITIONS = 2
WORKERS = ("episodes", "thresholds", "history")


@pytest.fixture
def start(broker: str, tmp_path: Path) -> Iterator[Callable[[str], System]]:
    """Start a system without workers on a data directory of its own."""
    if broker not in ("embedded", "apache"):
        pytest.skip("a broker that runs already is not destroyed")
    started: list[System] = []

    def begin(name: str) -> System:
        config = stack_config(data=tmp_path / name, kafka=broker)
        started.append(System(config, partitions=PARTITIONS, workers=False))
        started[-1].start()
        return started[-1]

    yield begin
    for each in started:
        each.stop(drain=False)


@contextmanager
def working(system: System) -> Iterator[Supervisor]:
    """Run the workers that take part, as `headstart worker all` would run all."""
    places = {f"HEADSTART_{name.upper()}": value for name, value in vars_of(system).items()}
    environment = {**places, "HEADSTART_DATA": str(system.data)}
    supervisor = Supervisor(system.data / "workers", environment, WORKERS, logins(system.addresses))
    supervisor.start()
    try:
        until(lambda: supervisor.ready, meanwhile=supervisor.check)
        yield supervisor
    finally:
        supervisor.stop()


def places(system: System, *names: str) -> list[str]:
    return [word for name in names for word in (f"--{name}", getattr(system.addresses, name))]


class Load:
    """Emits events until it is stopped."""

    def __init__(self, kafka: str, spool: Path, event: Callable[[int], Event]) -> None:
        self._ended, self._event = threading.Event(), event
        self._emitter = Emitter(kafka, spool=spool)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number = 0
        while not self._ended.wait(0.05):
            for _ in range(5):
                self._emitter.emit(self._event(number))
                number += 1

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._emitter.close()


async def _log(kafka: str, end: dict[int, int]) -> list[Event]:
    """The oracle's own reading: the events in records before `end`."""
    begin, found = (await topic_state(kafka, EVENTS.name)).begin, list[Event]()
    async for record in read_records(kafka, EVENTS.name, begin, end):
        value = json.loads(record.value)
        each = value if isinstance(value, list) else [value]
        found += [event for event in each if "event_type" in event]
    return found


def test_a_restored_system_has_each_event_once(
    start: Callable[[str], System],
    headstart: Any,
    judged: Callable[..., Event],
    counts: Callable[[Sequence[Event]], dict[str, int]],
    stored_at: Callable[..., Any],
    tenant: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def event(number: int) -> Event:
        return judged(tenant, TYPES[number % 3], user_id=f"u{number % 7}")

    first, folder, purges = start("first"), tmp_path / "backup", tmp_path / "purges"
    at = places(first, "kafka", "postgres")
    with working(first) as workers:
        mode = ("config", "set", "mode", "observe", "--tenant", tenant, "--reason", "drill")
        assert headstart(*mode, *places(first, "kafka", "redis")).returncode == 0
        with Load(first.addresses.kafka, tmp_path / "spool", event):
            before = stored_at(vars_of(first), tenant, workers.check)
            before.until(lambda: len(before.ids()) > 200)
            made = headstart("backup", "create", "--to", folder, *at, "--json")
            assert made.returncode == 0, made.stderr
        manifest = read_manifest(folder)
        assert json.loads(made.stdout)["log_records"] == manifest.count("events") > 0
        assert {stat.S_IMODE(each.stat().st_mode) for each in folder.iterdir()} == {0o600}
        assert first.addresses.postgres not in (folder / "manifest.json").read_text()
        assert headstart("backup", "verify", "--from", folder).returncode == 0
        expected = asyncio.run(_log(first.addresses.kafka, dict(manifest.log_end)))
        purge = ("memory", "purge", "--tenant", tenant, "--user", "u3", *at, "--yes")
        assert headstart(*purge).returncode == 0
        listed = headstart("backup", "purges", purges, *places(first, "postgres"))
        assert listed.returncode == 0, listed.stderr
    first.stop(drain=False)  # Postgres, the log, Redis and the workers' data: all are gone

    second = start("second")
    _interrupt(folder, second, monkeypatch)
    to = ["backup", "restore", "--from", folder, *places(second, "kafka", "postgres")]
    ended = headstart(*to, "--purges", purges, "--json")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    assert (result["again"], result["purges"]) == (manifest.count("events"), 1)

    kept = sorted(each["id"] for each in expected if each["user_id"] != "u3")
    learned = {k: n for k, n in counts(expected).items() if "user_id=u3" not in k}
    with working(second) as workers:
        after = stored_at(vars_of(second), tenant, workers.check)
        after.until(lambda: after.ids() == kept and after.counted(*TYPES) == learned)
        every = places(second, "kafka", "postgres", "redis")
        verified = headstart("verify", *every, "--caught-up")
        assert verified.returncode == 0, verified.stdout + verified.stderr
        listed = headstart("config", "list", "--json", *places(second, "kafka", "redis"))
        assert "drill" in listed.stdout


def vars_of(system: System) -> dict[str, str]:
    at = system.addresses
    return {"kafka": at.kafka, "postgres": at.postgres, "redis": at.redis}


def _interrupt(folder: Path, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the tables and one record of the log, and end there."""
    send = restored_log.send_saved

    async def send_one(producer: Any, topic: str, records: Any) -> None:
        await send(producer, topic, list(records)[:1])
        raise RuntimeError("interrupted")

    at = system.addresses
    target = RestoreTarget(at.kafka, at.postgres)
    with monkeypatch.context() as patched:
        patched.setattr(restored_log, "send_saved", send_one)
        with pytest.raises(RuntimeError, match="interrupted"):
            asyncio.run(restore_backup(folder, target, (), lambda _line: None))


def test_a_restore_refuses_what_is_not_empty(
    system: System, headstart: Any, judged: Any, write_events: Any, tenant: str, tmp_path: Path
) -> None:
    at = ["--kafka", system.addresses.kafka, "--postgres", system.addresses.postgres]
    sent = headstart("emit", write_events([judged(tenant)]), *at[:2])
    assert sent.returncode == 0
    assert system.drain(PATIENCE_S)
    made = headstart("backup", "create", "--to", tmp_path / "backup", *at)
    assert made.returncode == 0, made.stderr
    refused = headstart("backup", "restore", "--from", tmp_path / "backup", *at)
    assert refused.returncode == 1
    assert "the database is not empty" in refused.stderr
