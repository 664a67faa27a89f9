"""Shared by benchmarks: backlogs on the events topic, worker processes, CPU time and memory."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import orjson

from deploy.local import Addresses, Stack, StackConfig
from deploy.local.child_process import Ending
from deploy.local.process_group import ProcessGroup
from deploy.system import prepare
from headstart.connections.kafka_connections import new_producer
from headstart.events.frames import encode_frame
from headstart.keys import event_key
from processing.records.partitioner import partition_for
from topics.catalogue import EVENTS

PARTITIONS = 8
CONTEXTS = 200
BATCH_BYTES = 900_000
_ENDING = Ending(signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)
_ROOT = Path(__file__).parents[2]
_RUN = "import runpy, sys; sys.path.insert(0, sys.argv[1]); del sys.argv[:2]; "
_RUN += "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"


def bench_command(module: str, *arguments: str) -> list[str]:
    """Return the command that runs a module of this package, which is not installed."""
    return [sys.executable, "-P", "-c", _RUN, str(_ROOT), module, *arguments]


def echo(line: str) -> None:
    """Print progress on stderr."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def fresh_stack(kafka: str, partitions: int = PARTITIONS) -> Iterator[tuple[Addresses, Path]]:
    """Yield a prepared stack on an empty data directory."""
    with TemporaryDirectory(prefix="headstart-bench-") as folder:
        path = Path(folder)
        with Stack(StackConfig(data=path / "stack", kafka=kafka)) as stack:
            asyncio.run(prepare(stack.addresses, partitions))
            yield stack.addresses, path


def events(
    count: int,
    contexts: int = CONTEXTS,
    *,
    partitions: int = PARTITIONS,
    begin: int = 0,
    spool: str = "",
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (partition, key, JSON) of `task_complete` events as the client sends them.

    One context per workflow type, about 480 bytes per event. The first has position `begin` in
    `spool`, by default a new spool.
    """
    draw = random.Random(7)
    ids = [str(uuid.UUID(int=draw.getrandbits(128), version=4)) for _ in range(4096)]
    names = [f"workflow-{number}" for number in range(contexts)]
    places = [
        (partition_for("bench", name, partitions), event_key("bench", name)) for name in names
    ]
    start = time.time_ns() // 1_000_000
    spool = spool or str(uuid.uuid4())
    for number in range(begin, begin + count):
        context = number % contexts
        partition, key = places[context]
        unique = f"{number:08x}{ids[number % 4096][8:]}"
        yield partition, key, orjson.dumps(
            {
                "id": unique,
                "event_type": "task_complete",
                "tenant": "bench",
                "workflow_type": names[context],
                "workflow_id": f"run-{number // 10}",
                "task_id": str(number % 10),
                "user_id": f"user-{number % 50}",
                "timestamp": start + number // 100,
                "tool_id": "search",
                "success": True,
                "confidence": draw.random(),
                "data": {
                    "context": {"domain": "retail", "complexity": 0.5},
                    "prediction": {"was_correct": draw.random() < 0.8, "speculated": True},
                    "result": {"execution_time_ms": 812.5, "gain_ms": 400.0, "cost_ms": 600.0},
                },
                "origin": [spool, number],
            }
        )  # fmt: skip


def frames(
    count: int, per_frame: int, contexts: int = CONTEXTS, *, partitions: int = PARTITIONS
) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (partition, key, record value): single events, or frames of one key."""
    if per_frame == 1:
        yield from events(count, contexts, partitions=partitions)
        return
    waiting: dict[bytes, list[bytes]] = {}
    for partition, key, event in events(count, contexts, partitions=partitions):
        of_key = waiting.setdefault(key, [])
        of_key.append(event)
        if len(of_key) == per_frame:
            yield partition, key, encode_frame(of_key)
            of_key.clear()


async def produce(
    kafka: str,
    records: Iterable[tuple[int, bytes, bytes]],
    *,
    filled: bool = True,
    compression: str | None = None,
) -> int:
    """Produce records to the events topic in full record batches, or in batches of one record.

    Returns the number of records.
    """
    producer = new_producer(
        kafka,
        acks=1,
        max_batch_size=BATCH_BYTES,
        max_request_size=1_048_576,
        compression_type=compression,
    )
    await producer.start()
    builders: dict[int, Any] = {}
    count = 0
    try:
        for partition, key, value in records:
            builder = builders.get(partition)
            if builder is None:
                builder = builders[partition] = producer.create_batch()
            elif not filled:
                await producer.send_batch(builder, EVENTS.name, partition=partition)
                builder = builders[partition] = producer.create_batch()
            if builder.append(key=key, value=value, timestamp=None) is None:
                await producer.send_batch(builder, EVENTS.name, partition=partition)
                builder = builders[partition] = producer.create_batch()
                builder.append(key=key, value=value, timestamp=None)
            count += 1
        for partition, builder in builders.items():
            await producer.send_batch(builder, EVENTS.name, partition=partition)
    finally:
        await producer.stop()
    return count


def worker_environment(addresses: Addresses, data: Path, **more: str) -> Mapping[str, str]:
    """Return the environment of a worker process."""
    return {
        "HEADSTART_KAFKA": addresses.kafka,
        "HEADSTART_POSTGRES": addresses.postgres,
        "HEADSTART_REDIS": addresses.redis,
        "HEADSTART_DATA": str(data),
    } | more


class Running:
    """A child process of a benchmark, killed at the end of the `with` block."""

    def __init__(
        self, folder: Path, name: str, argv: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        self._group = ProcessGroup(folder)
        self._group.claim(name)
        self._child = self._group.spawn(name, argv, _ENDING, env={**os.environ, **environment})
        self._group.launched()

    @property
    def process(self) -> int:
        """Its process id."""
        return self._child.pid

    def check(self) -> None:
        """Raise `StackError` if it has ended."""
        if not self._child.alive:
            raise self._child.failure(self._child.outcome)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._group.close()


def wait_until(done: Callable[[], bool], patience_s: float = 300.0, every_s: float = 0.5) -> None:
    """Poll until `done` returns True. Raises `TimeoutError`."""
    deadline = time.monotonic() + patience_s
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {patience_s:.0f} s")
        time.sleep(every_s)


def resident_mb(process: int) -> float:
    """Return the resident set of a process in MB. Raises `OSError` if it has ended."""
    status = Path(f"/proc/{process}/status").read_text()
    found = status.partition("VmRSS:")[2].split()
    if not found:  # a zombie
        raise ProcessLookupError(f"process {process} has ended")
    return int(found[0]) * 1024 / 1e6


def cpu_s(process: int) -> float:
    """Return the CPU seconds of a process. Raises `OSError` if it has ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family_cpu_s(process: int) -> float:
    """Return the CPU seconds of a process and its descendants, including ended ones."""
    parents: dict[int, tuple[int, int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            parents[int(folder.name)] = (int(fields[1]), sum(map(int, fields[11:15])))
    family = {process}
    while more := {pid for pid, (parent, _) in parents.items() if parent in family} - family:
        family |= more
    ticks = sum(parents[pid][1] for pid in family if pid in parents)
    return ticks / os.sysconf("SC_CLK_TCK")


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of `values` lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def shipping(spool: Path) -> int:
    """Return the process id of the shipper of a spool directory."""
    return int((spool / "ship.lock").read_bytes()[4:].strip(b"\0 \n"))
