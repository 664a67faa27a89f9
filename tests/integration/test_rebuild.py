"""`headstart rebuild`: a fresh table from the log, while events flow and processes are killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from deploy.system import System, wait_drained
from headstart import Emitter
from headstart.keys import DEFAULT_PATH, redis_key
from processing.control.rebuild_state import KEY, followup_in
from replay.log.live_table import read_whole_table
from sinks.redis.queries import served_thresholds
from tests.processes import command_line
from tests.secured import stack_config
from topics.epoch import read_epoch

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

PARTITIONS = 2
TYPES = [f"type-{number}" for number in range(6)]


@pytest.fixture(scope="module")
def own(broker: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A system whose worker may be killed. A running broker belongs to others.

    One thread looks after it to the end: the kernel ends with a thread the workers it started.
    """
    if broker not in ("embedded", "apache"):
        pytest.skip("a broker that runs already is not to be rebuilt")
    config = stack_config(data=tmp_path_factory.mktemp("rebuilt"), kafka=broker)
    ended = threading.Event()
    with System(config, partitions=PARTITIONS) as running, ThreadPoolExecutor(1) as thread:

        def look_after() -> None:
            while not ended.wait(0.2):
                running.check()

        looked_after = thread.submit(look_after)
        yield running
        ended.set()
        looked_after.result()


class Load:
    """Events of one tenant at a steady rate, and what readers see."""

    def __init__(self, system: System, tenant: str, spool: Path) -> None:
        self.tenant, self._system = tenant, system
        self._emitter = Emitter(system.addresses.kafka, spool=spool)
        self._draw, self._ended = random.Random(7), threading.Event()
        self.emitted, self.vanished = 0, list[str]()
        self._threads = [threading.Thread(target=each) for each in (self._emit, self._read)]

    def __enter__(self) -> Load:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for each in self._threads:
            each.join(60)
        self._emitter.close(60)

    def add(self, count: int) -> None:
        """Emit some more events."""
        draw = self._draw
        for _ in range(count):
            confidence = draw.random()
            judged = {"was_correct": draw.random() < confidence, "speculated": True}
            context = {"domain": f"d{draw.randrange(3)}"}
            self._emitter.emit(
                event_type="task_complete", tenant=self.tenant, workflow_type=draw.choice(TYPES),
                workflow_id=f"w{self.emitted}", user_id=f"u{draw.randrange(5)}",
                confidence=confidence, data={"context": context, "prediction": judged},
            )  # fmt: skip
            self.emitted += 1

    def _emit(self) -> None:
        while not self._ended.wait(0.05):
            self.add(20)

    def _read(self) -> None:
        """Look at every threshold again and again: what was there once has to stay."""
        seen: set[tuple[str, bytes]] = set()
        with Redis.from_url(self._system.addresses.redis) as redis:
            while not self._ended.wait(0.01):
                now = set()
                for kind in TYPES:
                    for path, value in redis.hgetall(redis_key(self.tenant, kind)).items():
                        if not json.loads(value).get("deleted"):
                            now.add((kind, path))
                self.vanished += [path.decode() for _kind, path in seen - now]
                seen |= now


@pytest.fixture
def load(own: System, tenant: str, tmp_path: Path) -> Iterator[Load]:
    with Load(own, tenant, tmp_path / "spool") as running:
        running.add(2_000)
        yield running


@pytest.fixture
def command(own: System, headstart: Any) -> Callable[..., dict[str, Any]]:
    """Run a command on the system; return its output."""
    at = own.addresses

    def run(*words: str, code: int = 0) -> dict[str, Any]:
        ended = headstart(*words, "--kafka", at.kafka, "--json", seconds=900)
        assert ended.returncode == code, ended.stderr
        output: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
        return output

    return run


def served(system: System, tenant: str) -> dict[str, dict[str, Any]]:
    async def read() -> dict[str, dict[str, Any]]:
        found = served_thresholds(system.addresses.redis, tenant)
        return {each["path"]: each async for each in found}

    return asyncio.run(read())


def verified(system: System, command: Callable[..., dict[str, Any]]) -> dict[str, Any]:
    at, epoch = system.addresses, system.epoch
    assert epoch is not None
    assert wait_drained(at, epoch.number, lambda: None, 600.0) == 0
    return command("verify", "--postgres", at.postgres, "--redis", at.redis)


def followed(system: System) -> set[tuple[str, str]]:
    """(id, result) of the rebuild that each partition followed last."""

    async def read() -> set[tuple[str, str]]:
        tables = await read_whole_table(system.addresses.kafka, await read_epoch(kafka))
        output = [followup_in(each.rows.get(KEY)) for each in tables.values()]
        return {("", "never") if s is None else (s.rebuild.id, s.result) for s in output}

    kafka = system.addresses.kafka
    return asyncio.run(read())


def kill_worker(system: System) -> None:
    assert system.supervisor is not None
    with suppress(ProcessLookupError):
        os.killpg(system.supervisor.pids["thresholds"], signal.SIGKILL)


def test_as_they_were_nothing_differs_and_nothing_changes(
    own: System, load: Load, command: Callable[..., dict[str, Any]]
) -> None:
    tried = command("rebuild", "--dry-run")
    assert (tried["sent"], tried["counts"], tried["moved"]) == (False, {}, 0)
    done = command("rebuild", "--yes")
    assert (done["sent"], done["taken"], done["counts"]) == (True, True, {})
    assert set(done["offsets"]) == {str(each) for each in range(PARTITIONS)}
    assert followed(own) == {(done["id"], "done")}
    load.__exit__()
    assert verified(own, command)["counts"] == {}
    assert load.vanished == []
    counted = sum(value["outcomes"] for path, value in served(own, load.tenant).items()
                  if "/" not in path)  # fmt: skip
    assert counted == load.emitted


def test_by_another_policy_every_context_stands_as_if_it_had_always_learned_it(
    own: System, load: Load, command: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    mine = ("rebuild", "--policy", "td", "--tenant", load.tenant)
    tried = command(*mine, "--dry-run")
    assert tried["moved"] > 0
    assert all(each["tenant"] == load.tenant for each in tried["moves"])
    done = command(*mine, "--yes")
    assert done["taken"]
    load.add(500)
    load.__exit__()
    assert verified(own, command)["counts"] == {}
    assert load.vanished == []
    found = served(own, load.tenant)
    assert {value["learner"] for value in found.values()} == {"td"}
    assert sum(v["outcomes"] for p, v in found.items() if "/" not in p) == load.emitted
    # The log relearned by that policy from the first event on gives the same, to the bit.
    file = tmp_path / "replayed.jsonl"
    words = ("replay", "--tenant", load.tenant, "--thresholds-out", str(file), "--processes", "1")
    command(*words, "--learner", "td")
    again = [json.loads(line) for line in file.read_text().splitlines()]
    assert again
    for each in again:
        if each["path"] == DEFAULT_PATH:  # of no context
            continue
        assert each["speculate"] == found[each["path"]]["speculate"]
        assert each["outcomes"] == found[each["path"]]["outcomes"]


def test_killed_in_the_middle_the_same_command_ends_it(
    own: System, load: Load, command: Callable[..., dict[str, Any]]
) -> None:
    """The command is killed when it prints that a partition is sent; the worker repeatedly."""
    line = command_line("rebuild", "--yes", "--policy", "ema:alpha=.1",
                        "--tenant", load.tenant, "--kafka", own.addresses.kafka)  # fmt: skip
    for moment in ("partition 1 of 2", "partition 0: sent", "partition 1: sent"):
        with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            for output in process.stderr:
                if output.startswith(moment):
                    process.kill()
                    kill_worker(own)
                    break
            else:
                raise AssertionError(f"it never printed {moment!r}")
    beside = threading.Event()

    def kill_again() -> None:
        while not beside.wait(3.0):
            kill_worker(own)

    killing = threading.Thread(target=kill_again)
    killing.start()
    time.sleep(3.5)
    beside.set()
    killing.join(30)
    done = command("rebuild", "--yes", "--policy", "ema:alpha=.1", "--tenant", load.tenant)
    assert done["taken"]
    assert followed(own) == {(done["id"], "done")}
    load.__exit__()
    assert verified(own, command)["counts"] == {}
    assert load.vanished == []
    found = served(own, load.tenant)
    assert {value["learner"] for value in found.values()} == {"ema:alpha=0.1"}
    assert sum(v["outcomes"] for p, v in found.items() if "/" not in p) == load.emitted


def test_an_invalid_rebuild_is_refused_and_nothing_is_sent(
    own: System, command: Callable[..., dict[str, Any]], headstart: Any
) -> None:
    kafka = ("--kafka", own.addresses.kafka)
    for words, why in (
        (("--policy", "hopps"), "hops"),
        (("--policy", "td", "--pattern", "refund"), "key=value parts"),
        (("--tenant", "acme"), "--policy"),
        (("--learner", "td", "--yes", "--wait", "60"), "dead-letters"),
    ):
        ended = headstart("rebuild", *words, *kafka, seconds=900)
        assert ended.returncode != 0, words
        assert why in ended.stderr
    ended = headstart("rebuild", *kafka, stdin="n\n", seconds=900)
    assert ended.returncode == 1
    assert "nothing is changed" in ended.stderr
