"""What workers answer over HTTP, also where Postgres is away: only the sinks need it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from deploy.local import Addresses, Stack
from deploy.system import prepare
from headstart import Emitter
from tests.patience import PATIENCE_S, until
from tests.ports import free_port
from tests.secured import ALLOWED, environment, everything_allowed, stack_config

pytestmark = [pytest.mark.integration, pytest.mark.slow]

Event = dict[str, Any]
STUCK_AFTER_S = 30.0


class Switch:
    """A TCP proxy before Postgres, closed at first; closing cuts what is connected."""

    def __init__(self, dsn: str) -> None:
        target = conninfo_to_dict(dsn)
        self._target = (str(target["host"]), int(str(target["port"])))
        self._port = free_port()
        self.dsn = make_conninfo(dsn, host="127.0.0.1", port=self._port)
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def open(self) -> None:
        server = socket.create_server(("127.0.0.1", self._port))
        self._sockets.append(server)
        self._run(self._accept, server)

    def close(self) -> None:
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(5)
        self._sockets, self._threads = [], []

    def _run(self, work: Callable[..., None], *arguments: socket.socket) -> None:
        self._threads.append(threading.Thread(target=work, args=arguments))
        self._threads[-1].start()

    def _accept(self, server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                pair = (server.accept()[0], socket.create_connection(self._target))
                self._sockets += pair
                for source, sink in (pair, pair[::-1]):
                    self._run(_copy, source, sink)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while chunk := source.recv(65_536):
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_RDWR)


class Workers:
    """`worker all`, and what its three workers answer."""

    def __init__(self, running: Any, port: int) -> None:
        self.running = running
        self._ports = {"episodes": port, "thresholds": port + 1, "history": port + 2}

    def ask(self, worker: str, path: str) -> tuple[int, dict[str, Any]]:
        """Status and body; (0, {}) where nothing answers."""
        url = f"http://127.0.0.1:{self._ports[worker]}/{path}"
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())
        except OSError:
            return 0, {}

    def metrics(self, worker: str) -> dict[str, float]:
        """What a worker counts, by name and labels."""
        url = f"http://127.0.0.1:{self._ports[worker]}/metrics"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            families = text_string_to_metric_families(answer.read().decode())
            return {f"{each.name}{''.join(each.labels.values())}": each.value
                    for family in families for each in family.samples}  # fmt: skip

    def until(self, worker: str, path: str, status: int, why: str | None) -> dict[str, Any]:
        """Wait for an answer; return its body."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            found, body = self.ask(worker, path)
            reason = body.get("why")
            if found == status and (reason is None if why is None else str(reason).startswith(why)):
                return body
            assert time.monotonic() < deadline, (worker, found, body)
            time.sleep(0.1)

    def until_lag(self, worker: str, lag: dict[str, int]) -> None:
        """Wait for a lag: a worker is ready before the broker has returned the end of its log."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := self.ask(worker, "readyz")[1].get("lag")) != lag:
            assert time.monotonic() < deadline, (worker, found)
            time.sleep(0.1)


@pytest.fixture
def stack(broker: str, tmp_path: Path) -> Iterator[Stack]:
    """All workers of it have one login, which needs the rights of each."""
    data = tmp_path / "stack"
    with Stack(stack_config(data=data, kafka=broker)) as running, everything_allowed(data):
        asyncio.run(prepare(running.addresses, 2))
        yield running


@pytest.fixture
def services(stack: Stack) -> Addresses:
    return stack.addresses


@pytest.fixture
def postgres(services: Addresses) -> Iterator[Switch]:
    switch = Switch(services.postgres)
    yield switch
    switch.close()


@pytest.fixture
def workers(
    launch: Callable[..., Any], services: Addresses, postgres: Switch, tmp_path: Path
) -> Iterator[Workers]:
    port = three_ports()
    where = addressed(services, postgres, tmp_path)
    health = ("--health", f"127.0.0.1:{port}", "--stuck-after-s", str(STUCK_AFTER_S))
    running = launch("worker", "all", *where, *health, environment=environment(ALLOWED))
    yield Workers(running, port)
    assert running.end(signal.SIGTERM) == 0


def addressed(services: Addresses, postgres: Switch, folder: Path) -> tuple[str, ...]:
    where = ("--kafka", services.kafka, "--redis", services.redis, "--postgres", postgres.dsn)
    return (*where, "--data", str(folder / "data"))


def three_ports() -> int:
    """The first of three free ports."""
    for first in range(20_000 + os.getpid() % 10_000, 32_000, 3):
        with suppress(OSError):
            for number in range(first, first + 3):
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", number))
            return first
    raise AssertionError("no free ports")


def test_postgres_away_makes_only_the_sinks_unready(
    services: Addresses,
    postgres: Switch,
    workers: Workers,
    judged: Callable[..., Event],
    stored_at: Callable[[dict[str, Any], str], Any],
    tenant: str,
) -> None:
    sinks, waits = ("episodes", "history"), "it waits for postgres"
    for sink in sinks:
        assert workers.until(sink, "readyz", 503, waits)["ready"] is False
        assert workers.ask(sink, "healthz")[0] == 200
    workers.until("thresholds", "readyz", 200, None)
    postgres.open()
    for sink in sinks:
        workers.until(sink, "readyz", 200, None)
        workers.until_lag(sink, {"0": 0, "1": 0})
    postgres.close()
    with Emitter(services.kafka) as emitter:
        emitter.emit(event := judged(tenant))
    for sink in sinks:
        workers.until(sink, "readyz", 503, waits)
    time.sleep(STUCK_AFTER_S + 5)
    status, body = workers.ask("episodes", "healthz")
    assert status == 200, "it waits, and is not stuck"
    assert sum(body["lag"].values()) >= 1, "the event, and perhaps clock records"
    workers.until("thresholds", "readyz", 200, None)
    stored = stored_at(vars(services), tenant)
    assert stored.counted("refund")["workflow_type=refund"] == 1
    postgres.open()
    stored.until(lambda: stored.ids() == [event["id"]], PATIENCE_S)
    for sink in sinks:
        workers.until(sink, "readyz", 200, None)
    episodes, thresholds = workers.metrics("episodes"), workers.metrics("thresholds")
    for counted in (episodes, thresholds):
        assert (counted["headstart_events_total"], counted["headstart_worker_ready"]) == (1, 1)
        assert counted["headstart_delay_seconds_count"] >= 1, "a step of clock records counts, too"
    assert (episodes["headstart_rows_total"], thresholds["headstart_published_total"]) == (1, 2)
    assert episodes["headstart_postgres_failures_total"] >= 1
    assert workers.running.err.read_text().count("\n") == 1, "nothing was printed but its start"


def test_workers_whose_service_is_away_end_in_time_all_the_same(
    stack: Stack,
    postgres: Switch,
    launch: Callable[..., Any],
    judged: Callable[..., Event],
    tmp_path: Path,
    tenant: str,
) -> None:
    where = addressed(stack.addresses, postgres, tmp_path)
    postgres.open()
    login = environment(ALLOWED)
    workers = {
        name: launch("worker", name, *where, environment=login)
        for name in ("episodes", "thresholds")
    }
    reports = {name: tmp_path / "data" / "workers" / f"{name}-0" / "progress" for name in workers}
    for path in reports.values():
        until(lambda p=path: p.exists() and b'"ready":true' in p.read_bytes())  # type: ignore[misc]
    postgres.close()
    with Emitter(stack.addresses.kafka) as emitter:
        emitter.emit(judged(tenant))
    until(lambda: b'"waits_for":["postgres"]' in reports["episodes"].read_bytes())
    assert workers["episodes"].end(signal.SIGTERM) == 0
    os.kill(stack.pids["broker"], signal.SIGKILL)
    until(lambda: b'"waits_for":["broker"]' in reports["thresholds"].read_bytes())
    assert workers["thresholds"].end(signal.SIGTERM) == 0
