"""Executors in processes of their own, and what a receiver makes of what they sent."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from headstart.spool.layout import NEW, QUARANTINE
from tests.patience import PATIENCE_S, until
from topics.catalogue import EVENTS
from topics.kafka.reader import read_records, topic_state

EXECUTOR = """
import os, sys, time
import headstart
kafka, tenant, count, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
emitter = headstart.Emitter(kafka)
for n in range(count):
    fields = dict(event_type="task_complete", workflow_type=f"flow-{n % 3}", workflow_id="w")
    os.write(1, (emitter.emit(fields, tenant=tenant, n=n) + "\\n").encode())
    if pause:
        time.sleep(pause)
emitter.close(90)
"""


@dataclass
class Executor:
    """A process that emits; the ids that `emit()` returned are in the file `emitted`."""

    process: subprocess.Popen[bytes]
    emitted: Path

    def ids(self) -> list[str]:
        return self.emitted.read_text().split()

    def until(self, count: int) -> None:
        """Wait until so many emits have returned."""
        until(lambda: len(self.ids()) >= count or self.process.poll() is not None)
        assert len(self.ids()) >= count

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        assert self.process.wait(PATIENCE_S) == 0


@dataclass
class Host:
    """One directory of spools and the processes that use it."""

    kafka: str
    tenant: str
    home: Path
    mode: str = "process"
    wrong_kafka: str | None = None
    executors: list[Executor] = field(default_factory=list)
    begin: dict[int, int] = field(default_factory=dict)

    @property
    def spool(self) -> Path:
        return self.home / "spool"

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "HEADSTART_SPOOL": str(self.spool),
            "HEADSTART_SHIPPER": self.mode,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }

    def start(self, count: int, pause: float = 0.0, program: str = EXECUTOR) -> Executor:
        emitted = self.home / f"emitted-{len(self.executors)}"
        kafka = self.wrong_kafka or self.kafka
        argv = [sys.executable, "-c", program, kafka, self.tenant, str(count), str(pause)]
        with emitted.open("wb") as out:
            process = subprocess.Popen(argv, stdout=out, env=self.environment())
        self.executors.append(Executor(process, emitted))
        return self.executors[-1]

    def drain(self, *options: str) -> None:
        """Ship what is left, as an operator would."""
        argv = [sys.executable, "-m", "headstart", "ship", "--drain", "--timeout", str(PATIENCE_S)]
        argv += options
        ran = subprocess.run(
            argv, env=self.environment(), timeout=2 * PATIENCE_S, capture_output=True, check=False
        )
        assert ran.returncode == 0, ran.stderr

    def shipper(self) -> int:
        """The process that ships; 0 before there was one."""
        try:
            return int((self.spool / "ship.lock").read_bytes()[4:].strip(b"\0 \n") or b"0")
        except FileNotFoundError:
            return 0

    def spools(self) -> list[str]:
        """The spools that are left. One whose process died in making it holds nothing yet."""
        if not self.spool.is_dir():
            return []
        folders = [path.name for path in self.spool.iterdir() if path.is_dir()]
        return [name for name in folders if name != QUARANTINE and not name.startswith(NEW)]

    def emitted(self) -> set[str]:
        """Every id that an emit() returned."""
        return {name for executor in self.executors for name in executor.ids()}

    def log(self) -> list[dict[str, Any]]:
        """This tenant's events in the order of each partition, with `partition`."""
        return asyncio.run(self._log())

    async def _log(self) -> list[dict[str, Any]]:
        end = (await topic_state(self.kafka, EVENTS.name)).end
        mine = self.tenant.encode() + b"\x1f"
        return [
            event
            async for record in read_records(self.kafka, EVENTS.name, self.begin, end)
            if record.key is not None and record.key.startswith(mine)
            for event in orjson.loads(record.value)
        ]

    def check(self) -> int:
        """Every emitted event is there, and once for receivers that drop by position.

        Returns how many events were repeated.
        """
        log = self.log()
        kept = deduplicated(log)
        assert {event["id"] for event in log} == {event["id"] for event in kept}
        assert len({event["id"] for event in kept}) == len(kept)
        assert self.emitted() <= {event["id"] for event in kept}
        order: dict[tuple[str, str], list[int]] = defaultdict(list)
        for event in kept:
            order[event["origin"][0], event["workflow_type"]].append(event["n"])
        assert all(numbers == sorted(numbers) for numbers in order.values())
        return len(log) - len(kept)


def new_host(kafka: str, tenant: str, home: Path, mode: str = "process") -> Host:
    begin = asyncio.run(topic_state(kafka, EVENTS.name)).end
    return Host(kafka, tenant, home, mode, begin=dict(begin))


def end(host: Host) -> None:
    """End what a test has left: executors that it started, and their shared shipper."""
    for executor in host.executors:
        if executor.process.poll() is None:
            executor.kill()
    shipper = host.shipper()
    if shipper and shipper != os.getpid():
        kill(shipper)


def kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def deduplicated(log: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a receiver keeps: positions above the last seen of their spool and key."""
    last: dict[tuple[str, str], int] = {}
    kept = []
    for event in log:
        spool, position = event["origin"]
        place = (spool, event["workflow_type"])
        if position > last.get(place, -1):
            last[place] = position
            kept.append(event)
    return kept


def runs(process: int) -> bool:
    """Whether a process is there, and has not merely not been waited for."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
