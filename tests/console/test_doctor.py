"""Each fault is planted, and must be named with its cause; what is well must not be blamed."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from redis import Redis

from console.inspection.doctor.broker import dead_letters
from console.inspection.doctor.findings import Finding
from console.inspection.doctor.machine import Machine, check_clock, check_machine
from console.inspection.doctor.run import HERE, diagnose
from console.inspection.target import InspectionTarget
from console.inspection.workers import find_workers
from deploy.local import Addresses
from headstart.keys import MODES, PUBLISHED, model_key, modes_key
from processing.worker_report import Report, encode_report
from sinks.postgres.migrate import migrate, read_migrations
from topics.catalogue import DEAD_LETTERS, HANDLED, THRESHOLDS, TOPICS
from topics.kafka.admin import admin_client, create_topics
from topics.kafka.topic_states import TopicState

HOUR_S = 3600.0


def wrong(target: InspectionTarget, machine: Machine = HERE) -> list[Finding]:
    return [each for each in asyncio.run(diagnose(target, machine)) if each.level == "error"]


def one(found: list[Finding], check: str, *parts: str) -> None:
    (only,) = found
    assert only.check == check
    for part in parts:
        assert part in only.what, only
    assert only.remedy


def test_a_healthy_system_has_no_errors(target: InspectionTarget) -> None:
    assert wrong(target) == []


def test_quarantined_events_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADSTART_SPOOL", str(tmp_path))
    machine = Machine(free=lambda _path: 1 << 40)
    before = list(check_machine(machine, tmp_path))
    kept = tmp_path / "quarantine"
    kept.mkdir()
    assert list(check_machine(machine, tmp_path)) == before
    (kept / "s-0.log").touch()
    (found,) = (each for each in check_machine(machine, tmp_path) if each not in before)
    assert (found.check, found.level) == ("spool", "warning")
    assert f"{kept} (files: 1)" in found.what


@pytest.mark.parametrize("service", ["kafka", "postgres", "redis"])
def test_a_closed_port(target: InspectionTarget, closed: str, service: str) -> None:
    given = {
        "kafka": closed,
        "postgres": f"postgresql://u:hush@{closed}/headstart",
        "redis": f"redis://:hush@{closed}/0",
    }
    found = wrong(replace(target, **{service: given[service]}))
    one(found, service, closed, "nothing listens there")
    assert "hush" not in str(found)


def test_an_unknown_host(target: InspectionTarget) -> None:
    one(wrong(replace(target, kafka="no.such.host.invalid:9092")), "kafka", "no such host")


@pytest.mark.parametrize(
    ("key", "field", "mode", "whose"),
    [
        (MODES, "*", "OFF", "'OFF' for everybody"),
        (modes_key("a:b"), "agent/p", "shadow", "'shadow' for agent p of tenant a:b"),
    ],
)
def test_an_invalid_mode(
    target: InspectionTarget, key: str, field: str, mode: str, whose: str
) -> None:
    with Redis.from_url(target.redis) as redis:
        redis.hset(key, field, mode)
        try:
            one(wrong(target), "redis", whose, "off")
        finally:
            redis.delete(key)


def test_modes_of_another_redis_type(target: InspectionTarget) -> None:
    with Redis.from_url(target.redis) as redis:
        redis.set(MODES, "off")
        try:
            one(wrong(target), "redis", "WRONGTYPE", "everybody")
        finally:
            redis.delete(MODES)


def test_models_later_than_the_log(target: InspectionTarget) -> None:
    key = model_key("acme", "refund")
    with Redis.from_url(target.redis) as redis:
        redis.hset(key, mapping={"version": "9999999999:5", "snapshot": "?"})
        try:
            one(wrong(target), "served", "later than the log", "refund of tenant acme")
        finally:
            redis.delete(key)


def test_unpublished_modes(target: InspectionTarget) -> None:
    def noted() -> list[Finding]:
        found = asyncio.run(diagnose(target, HERE))
        return [each for each in found if "no worker has published modes" in each.what]

    with Redis.from_url(target.redis, decode_responses=True) as redis:
        redis.delete(MODES)
        (only,) = noted()
        assert (only.check, only.level) == ("served", "warning")
        assert "`headstart up` or `headstart worker thresholds`" in only.remedy
        redis.hset(MODES, PUBLISHED, redis.info("server")["run_id"])
        try:
            assert noted() == wrong(target) == []
        finally:
            redis.delete(MODES)


def test_a_wrong_redis_password(target: InspectionTarget) -> None:
    with Redis.from_url(target.redis) as redis:
        redis.config_set("requirepass", "right")
        try:
            address = target.redis.removeprefix("redis://")
            one(wrong(target), "redis", "it wants a password")
            other = replace(target, redis=f"redis://:mistaken@{address}")
            one(wrong(other), "redis", "the password or user is wrong")
            assert "mistaken" not in str(wrong(other))
            assert wrong(replace(target, redis=f"redis://:right@{address}")) == []
        finally:
            redis.config_set("requirepass", "")


@contextmanager
def passwords_asked(target: InspectionTarget, folder: Path) -> Iterator[str]:
    """Ask every user but the owner for a password; yield the address without a user."""
    hba = folder / "postgres" / "pg_hba.conf"
    before = hba.read_text()
    with psycopg.connect(target.postgres, autocommit=True) as connection:
        connection.execute("CREATE ROLE guarded LOGIN SUPERUSER PASSWORD 'right'")
        hba.write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        try:
            yield target.postgres.partition("@")[2]
        finally:
            hba.write_text(before)
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("DROP ROLE guarded")


def test_a_wrong_postgres_password(target: InspectionTarget, folder: Path) -> None:
    with passwords_asked(target, folder) as address:
        other = replace(target, postgres=f"postgresql://guarded:mistaken@{address}")
        found = wrong(other)
        one(found, "postgres", "the password or user is wrong")
        assert "mistaken" not in str(found)
        assert "password" in found[0].remedy


async def _delete(kafka: str, name: str) -> None:
    async with admin_client(kafka) as client:
        await client.delete_topics([name])


@pytest.fixture
def without(at: Addresses) -> Iterator[Callable[[str], None]]:
    """Delete a topic; put back what is missing or other at the end."""
    gone: list[str] = []

    def delete(name: str) -> None:
        gone.append(name)
        asyncio.run(_delete(at.kafka, name))

    yield delete
    for name in gone:
        asyncio.run(_delete(at.kafka, name))
        (topic,) = (each for each in TOPICS if each.name == name)
        asyncio.run(create_topics(at.kafka, 3, topics=[topic]))


def test_a_missing_topic(target: InspectionTarget, without: Callable[[str], None]) -> None:
    without(DEAD_LETTERS.name)
    found = wrong(target)
    one(found, "topics", "missing: headstart.dead-letters")
    assert "headstart topics create" in found[0].remedy


def test_a_wrong_partition_count(target: InspectionTarget, without: Callable[[str], None]) -> None:
    without(THRESHOLDS.name)
    asyncio.run(create_topics(target.kafka, 2, topics=[THRESHOLDS]))
    one(wrong(target), "topics", "headstart.thresholds has 2 partitions", "headstart.events: 3")


def test_a_topic_that_is_not_compacted(
    target: InspectionTarget, without: Callable[[str], None]
) -> None:
    without(THRESHOLDS.name)
    plain = replace(THRESHOLDS, cleanup="delete", retention_ms=1000)
    asyncio.run(create_topics(target.kafka, 3, topics=[plain]))
    one(wrong(target), "topics", "headstart.thresholds is not compacted")


def test_an_old_schema(target: InspectionTarget) -> None:
    base, _, _ = target.postgres.rpartition("/")
    with psycopg.connect(target.postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE old")
    asyncio.run(migrate(f"{base}/old", read_migrations()[:-1]))
    found = wrong(replace(target, postgres=f"{base}/old"))
    one(found, "schema", "is old", str(read_migrations()[-1]), "not applied")


def test_a_newer_schema(target: InspectionTarget) -> None:
    base, _, _ = target.postgres.rpartition("/")
    with psycopg.connect(target.postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE newer")
    asyncio.run(migrate(f"{base}/newer"))
    with psycopg.connect(f"{base}/newer", autocommit=True) as connection:
        connection.execute("INSERT INTO schema_migrations VALUES (99, 'to_come', 'x')")
    found = wrong(replace(target, postgres=f"{base}/newer"))
    one(found, "schema", "newer version of Headstart")
    assert "run that version" in found[0].remedy


def test_a_read_only_redis(target: InspectionTarget, closed: str) -> None:
    host, _, port = closed.partition(":")
    with Redis.from_url(target.redis) as redis:
        redis.replicaof(host, port)
        try:
            one(wrong(target), "redis", "is read-only", f"a replica of {closed}")
        finally:
            redis.replicaof("NO", "ONE")
    assert wrong(target) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_data_directory(target: InspectionTarget, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(0o500)
    one(wrong(replace(target, data=closed / "data")), "disk", "cannot be written")


def test_a_full_disk(target: InspectionTarget) -> None:
    full = Machine(free=lambda _path: 1 << 20)
    one(wrong(target, full), "disk", "the disk is full")


def test_a_clock_off_by_an_hour(target: InspectionTarget) -> None:
    behind = Machine(now=lambda: time.time() - HOUR_S)
    one(wrong(target, behind), "clock", "this machine's clock is wrong", "s behind")
    ahead = Machine(now=lambda: time.time() + HOUR_S)
    one(wrong(target, ahead), "clock", "this machine's clock is wrong", "s ahead of")


def test_clocks_that_disagree_among_themselves() -> None:
    found = check_clock({"Postgres": 0.1, "Redis": 400.0})
    assert (found.level, found.what) == ("error", "the clocks disagree: 400.0 s behind Redis's")
    assert check_clock({"Postgres": 0.1, "Redis": 10.0}).level == "warning"


def test_a_missing_extension(target: InspectionTarget, tmp_path: Path) -> None:
    for folder in ("_cython", "transport/_cython"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "_cython" / "streams.pyx").touch()
    found = wrong(target, Machine(faust=lambda: tmp_path))
    one(found, "extension", "Faust's Cython extension is missing", "_cython/streams")


def test_the_command_prints_findings_and_fixes(
    target: InspectionTarget, closed: str, run: Any
) -> None:
    where = ("--postgres", target.postgres, "--redis", target.redis)
    ended = run("doctor", "--kafka", closed, *where)
    assert ended.returncode == 1
    assert f"error    kafka      {closed}: nothing listens there" in ended.stdout
    assert "fix: start it" in ended.stdout
    ended = run("doctor", "--kafka", target.kafka, *where)
    assert ended.returncode == 0, ended.stdout
    assert ended.stderr.startswith("errors: 0, ")
    ended = run("doctor", "--json", "--kafka", closed, *where)
    (found,) = [each for each in json.loads(ended.stdout)["findings"] if each["check"] == "kafka"]
    assert (found["level"], found["state"]) == ("error", "wrong")


def test_waiting_dead_letters_are_a_warning() -> None:
    states = {
        DEAD_LETTERS.name: TopicState(DEAD_LETTERS.name, 1, {0: 2}, {0: 9}),
        HANDLED.name: TopicState(HANDLED.name, 1, {0: 0}, {0: 3}),
    }
    (found,) = dead_letters(states)
    assert (found.level, found.what) == ("warning", "about 4 wait to be replayed or dropped")
    assert found.remedy == "headstart dead-letters list"
    states[HANDLED.name] = TopicState(HANDLED.name, 1, {0: 0}, {0: 7})
    assert list(dead_letters(states)) == []


def test_a_worker_that_refused_too_much_is_named(tmp_path: Path) -> None:
    worker = tmp_path / "workers" / "episodes-0"
    worker.mkdir(parents=True)
    (worker / "progress").write_bytes(encode_report(Report(worker="episodes", pid=2**22 + 1, at=1)))
    (worker / "refused.json").write_text("{}")
    (found,) = find_workers(tmp_path)
    assert not found.running
    assert "too many records were refused" in str(found.trouble)
