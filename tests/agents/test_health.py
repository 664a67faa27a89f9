"""A worker's logs before it runs, and the endpoints' answers from a report."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from agents.config import WorkerConfig
from agents.health.http import AddressTaken, unready
from agents.health.reporter import HealthReporter
from deploy.supervisor import health_address
from processing.worker_report import REPORT_FILE, Report, decode_report


@pytest.fixture
def report() -> Callable[..., Report]:
    return lambda **more: Report(worker="episodes", pid=1, at=2, **more)


def test_a_worker_that_waits_for_its_services_logs_it(worker_config: WorkerConfig) -> None:
    worker_config.data.mkdir()
    health = HealthReporter("episodes", worker_config, {}, {"postgres"})

    async def start() -> Report | None:
        async with health.running():
            health.wait_for("topics", reason="redis://u:hush@h has none")
            return decode_report((worker_config.data / REPORT_FILE).read_bytes())

    found = asyncio.run(start())
    assert found is not None
    assert (found.worker, found.ready, found.waits_for) == ("episodes", False, ("topics",))
    assert found.waiting == "waits for topics: redis://u:***@h has none"
    assert health.stuck is None


def test_a_report_that_cannot_be_written_is_written_once_it_can(
    worker_config: WorkerConfig,
) -> None:
    worker_config.data.mkdir()
    health, report = (
        HealthReporter("episodes", worker_config, {}, set()),
        worker_config.data / REPORT_FILE,
    )
    in_the_way = report.with_name(f"{REPORT_FILE}.new")
    in_the_way.mkdir()

    async def start() -> None:
        async with health.running():
            assert not report.exists()
            in_the_way.rmdir()
            health.wait_for("topics")
            assert report.exists()

    asyncio.run(start())


def test_where_there_is_no_room_a_report_takes_the_place_of_the_one_before(
    worker_config: WorkerConfig,
) -> None:
    worker_config.data.mkdir()
    report = worker_config.data / REPORT_FILE
    HealthReporter("episodes", worker_config, {}, set()).wait_for(
        *(f"service {n}" for n in range(50))
    )
    report.with_name(f"{REPORT_FILE}.new").mkdir()
    HealthReporter("history", worker_config, {}, set()).write_report()
    found = decode_report(report.read_bytes())
    assert found is not None
    assert found.worker == "history"


def test_an_address_that_is_taken_is_named(worker_config: WorkerConfig) -> None:
    worker_config.data.mkdir()
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        health = HealthReporter("episodes", replace(worker_config, health=address), {}, set())

        async def start() -> None:
            async with health.running():
                raise AssertionError("it cannot answer")

        with pytest.raises(AddressTaken, match=address):
            asyncio.run(start())


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"ready": True}, None),
        ({}, "its partitions are not yet assigned and restored"),
        ({"waits_for": ("broker",), "away": ("broker",)}, "it waits for broker"),
        ({"ready": True, "away": ("redis",)}, "no answer from redis"),
    ],
)
def test_readiness_by_the_report(
    report: Callable[..., Report], more: dict[str, Any], why: str | None
) -> None:
    assert unready(report(**more)) == why


def test_supervised_workers_take_one_port_after_the_other() -> None:
    assert [health_address("0.0.0.0:8080", place) for place in range(3)] == [
        "0.0.0.0:8080",
        "0.0.0.0:8081",
        "0.0.0.0:8082",
    ]
    assert health_address("[::1]:80", 1) == "[::1]:81"


def test_a_service_that_goes_and_comes_back_is_one_line_each(worker_config: WorkerConfig) -> None:
    there = [True, False, False, True, True]

    async def probe() -> None:
        if not there.pop(0):
            raise ConnectionError("refused")

    health = HealthReporter("thresholds", worker_config, {"redis": probe}, set())
    health._log = SimpleNamespace(ask=lambda: asyncio.sleep(0))  # type: ignore[assignment]

    async def look() -> None:
        while there:
            await health._probe()

    with structlog.testing.capture_logs() as logs:
        asyncio.run(look())
    assert [(each["event"], each["service"]) for each in logs if "service" in each] == [
        ("service.unavailable", "redis"),
        ("service.available", "redis"),
    ]
