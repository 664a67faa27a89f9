"""Each service of a system killed in turns: nothing is lost, nothing is double."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from tests import patience
from tests.patience import PATIENCE_S
from tests.secured import stack_config
from topics.catalogue import EVENTS
from topics.kafka.reader import topic_state

pytestmark = pytest.mark.integration

TYPES = [f"type-{number}" for number in range(3)]
EXECUTOR = """
import os, sys, time
import headstart
kafka, tenant = sys.argv[1:3]
emitter, n = headstart.Emitter(kafka), 0
while os.getppid() == int(sys.argv[3]) and not os.path.exists(sys.argv[4]):
    fields = dict(event_type="task_complete", workflow_type=f"type-{n % 3}", workflow_id=f"w{n}",
                  tenant=tenant, confidence=.9, data={"prediction": {"was_correct": True}})
    os.write(1, (emitter.emit(fields) + "\\n").encode())
    n += 1
    time.sleep(.01)
emitter.close(90)
"""


@pytest.fixture
def own(broker: str, tmp_path: Path) -> Iterator[tuple[System, list[str]]]:
    """A system of the test's own, and its messages."""
    if broker not in ("embedded", "apache"):
        pytest.skip("a broker that runs already is not killed")
    messages: list[str] = []
    config = stack_config(data=tmp_path / "data", kafka=broker)
    spool = tmp_path / "spool"
    with System(config, partitions=2, echo=messages.append, spool=spool) as system:
        yield system, messages


@pytest.fixture
def executor(
    own: tuple[System, list[str]], tenant: str, tmp_path: Path
) -> Iterator[Callable[[], int]]:
    """A process that emits until it is called; that returns how many events it emitted."""
    emitted, done = tmp_path / "emitted", tmp_path / "done"
    environment = {
        **os.environ,
        "HEADSTART_SPOOL": str(tmp_path / "spool"),
        "HEADSTART_SHIPPER": "process",  # which outlives it, and lets go of what is taken in
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    words = [own[0].addresses.kafka, tenant, str(os.getpid()), str(done)]
    with emitted.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", EXECUTOR, *words], stdout=out, env=environment
        )

    def end() -> int:
        done.touch()
        assert process.wait(PATIENCE_S) == 0
        return len(emitted.read_text().split())

    yield end
    process.kill()
    process.wait()


def test_each_service_killed_in_turns(
    own: tuple[System, list[str]],
    executor: Callable[[], int],
    tenant: str,
    stored_at: Callable[[dict[str, Any], str], Any],
    broker: str,
) -> None:
    system, messages = own
    at = {"postgres": system.addresses.postgres, "redis": system.addresses.redis}
    stored = stored_at(at, tenant)

    until = partial(patience.until, pause_s=0.1, meanwhile=system.check, seen=lambda: messages)

    def kill(pids: Mapping[str, int], *names: str) -> None:
        count = len(messages)
        for name in names:
            os.kill(pids[name], signal.SIGKILL)
        if "redis" in names:  # which comes back empty
            shutil.rmtree(system.data / "redis" / "appendonlydir")
        for name in names:
            until(
                lambda name=name: any(
                    f"{name} was ended by SIGKILL" in each for each in messages[count:]
                )
            )

    def came_again() -> bool:
        """Whether the new log has events; workers take seconds to load before they read any."""
        try:
            state = asyncio.run(topic_state(system.addresses.kafka, EVENTS.name))
        except (ConnectionError, LookupError):
            return False
        return sum(state.end.values()) > 0

    until(lambda: bool(stored.counted(*TYPES)))
    kill(system.stack.pids, "redis", "postgres")
    kill(system.stack.pids, "broker")
    if broker == "embedded":  # which takes the workers with it
        until(came_again)
        kill(system.stack.pids, "broker")
        until(lambda: sum("log was lost with it; log epoch" in line for line in messages) == 2)
    else:
        assert system.supervisor is not None
        until(lambda: bool(system.supervisor and system.supervisor.ready))
        kill(system.supervisor.pids, "thresholds")
    number = executor()
    wanted = Counter(f"workflow_type={TYPES[n % 3]}" for n in range(number))
    until(lambda: stored.counted(*TYPES) == wanted and len(stored.ids()) == number)
    assert len(set(stored.ids())) == number
    assert system.drain(PATIENCE_S)
    assert stored.counted(*TYPES) == wanted
    assert {value["epoch"] for value in stored.served(*TYPES).values()} == {system.epoch.number}  # type: ignore[union-attr]
    if broker == "embedded":
        until(lambda: not [each for each in system.data.parent.glob("spool/*") if each.is_dir()])
