"""Purges a user of a whole running system, and counts what is left in every place.

Before it, each place has bytes of the user, so a place that could not be read would be noticed.
After it: Redis once the marks of deleted contexts have gone, which name the user; topics after
retention and compaction, on a broker that cleans every half second.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from bench.support.canary_counts import CanaryCounts, run_headstart
from bench.support.measuring import echo, produce
from deploy.local import StackConfig
from deploy.local.apache_kafka import Apache, ClusterMember, new_cluster_id
from deploy.local.ports import Ports
from deploy.local.process_group import ProcessGroup
from deploy.system import System
from headstart.events.schema import new_id
from headstart.keys import event_key
from topics.catalogue import CHANGELOG, DEAD_LETTERS, EVENTS, NOTICES, THRESHOLDS, Topic
from topics.kafka.admin import admin_client

RUNS: Final = 40
TENANT: Final = "bench-places"
USER: Final = "canary-user-1c0ffee2"
TEXT: Final = "canary-text-1c0ffee2"
MARKS_S: Final = 5
PATIENCE_S: Final = 300.0
_CLEANING: Final = """\
log.retention.check.interval.ms=500
log.initial.task.delay.ms=500
log.cleaner.backoff.ms=500
log.segment.delete.delay.ms=100
"""
_COMPACTED: Final = {
    "min.cleanable.dirty.ratio": "0.001",
    "min.compaction.lag.ms": "0",
    "segment.ms": "500",
    "delete.retention.ms": "0",
}
_RETAINED: Final = (EVENTS, DEAD_LETTERS, NOTICES)
_KEPT_LAST: Final = (THRESHOLDS, CHANGELOG)
_UNFILLED: Final = (NOTICES.name, "logs of workers")
"""Places that may lack the user's text before the purge."""
_EXECUTOR: Final = """
import json, os, sys
from headstart import Emitter
emitter = Emitter(sys.argv[1], spool=sys.argv[2], shipper="none", scrub="off")
for line in sys.stdin:
    emitter.emit(json.loads(line))
os._exit(0)
"""
"""An executor that is killed before anything is sent."""


def measure_places(kafka: str = "apache", runs: int = RUNS) -> dict[str, Any]:
    """Purge a user of `runs` runs; return bytes of the text and the name by place.

    `canary_bytes_of`: after the purge; `canary_bytes_before`. Postgres keeps the name on purpose,
    so that late events are recognized: its dump is searched for the text only. An `embedded` broker
    cleans no topic: then topics are left out.
    """
    begun = time.perf_counter()
    with (
        TemporaryDirectory(prefix="headstart-bench-") as made,
        _broker(kafka, Path(made)) as address,
        System(
            StackConfig(data=Path(made) / "system", kafka=address),
            partitions=1,
            environment={"HEADSTART_DELETION_MARKS_S": str(MARKS_S)},
        ) as system,
    ):
        places = _Places(system, Path(made), cleans=kafka != "embedded")
        places.fill(runs)
        before = places.exports() | places.counts()
        if empty := [name for name, n in before.items() if not n and name not in _UNFILLED]:
            raise RuntimeError(f"the user's text was not found before the purge in {empty}")
        places.purge()
        after = places.exports() | places.cleaned()
    return {
        "canary_bytes_of": after, "canary_bytes_before": before,
        "places_s": round(time.perf_counter() - begun, 1),
    }  # fmt: skip


@contextmanager
def _broker(kafka: str, folder: Path) -> Iterator[str]:
    """Yield what the stack is given: the address of a broker that cleans, or `embedded`."""
    if kafka != "apache":
        yield kafka
        return
    data = folder / "broker"
    data.mkdir()
    group, ports = ProcessGroup(data), Ports(data)
    broker = Apache(group, ports, 0, ClusterMember(new_cluster_id(), _CLEANING))
    try:
        broker.prepare()
        broker.launch()
        group.launched()
        address = broker.ready()
        ports.release()
        yield address
    finally:
        group.close()


class _Places:
    """The places of a system, filled with the user's data and others'."""

    def __init__(self, system: System, folder: Path, *, cleans: bool) -> None:
        self._system, self._folder, self._cleans = system, folder, cleans
        self._spool = folder / "spool"
        self._counts = CanaryCounts(system.addresses, folder, [TEXT.encode(), USER.encode()])
        self._later = 0

    def fill(self, runs: int) -> None:
        """Store runs of the user and of another, one refused event, and a spool of unsent ones."""
        kafka = self._system.addresses.kafka
        self._emit([each for n in range(runs) for each in _run(USER, f"mine-{n}", TEXT)])
        self._emit(_run("other", "other", "of another user"))
        refused = {**_run(USER, "refused", TEXT)[0], "timestamp": int(time.time())}
        key = event_key(TENANT, "refund")
        asyncio.run(produce(kafka, [(0, key, json.dumps(refused).encode())]))
        unsent = [each for n in range(runs) for each in _run(USER, f"unsent-{n}", TEXT)]
        unsent += _run("other", "unsent-other", "of another user")
        subprocess.run(
            [sys.executable, "-c", _EXECUTOR, kafka, str(self._spool)], check=True, text=True,
            input="".join(json.dumps(each) + "\n" for each in unsent), cwd=self._folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )  # fmt: skip
        self._drain()
        self._until(lambda: self._counts.export("memory", "export", "--tenant", TENANT) > 0)
        echo(f"{runs} runs of the user are stored, and as many in a spool")

    def purge(self) -> None:
        """Purge the user as an operator does: in the services, then on the host with the spool."""
        given = ("--tenant", TENANT, "--user", USER, "--yes")
        self._run("memory", "purge", *given)
        self._run("spool", "purge", *given, "--spool", str(self._spool))
        echo("purged")

    def exports(self) -> dict[str, int]:
        """Return the bytes in what is exported now: the topics may still have the user's events.

        An export of the log has the purge, too, and with it the name.
        """
        of_tenant = ("memory", "export", "--tenant", TENANT)
        return {
            "headstart export (text only)": self._counts.export("export", words=[TEXT.encode()]),
            "headstart memory export": self._counts.export(*of_tenant),
            "headstart memory export --user": self._counts.export(*of_tenant, "--user", USER),
        }

    def counts(self) -> dict[str, int]:
        """Return the bytes of the user's text and name by place, without exports."""
        data = self._system.data
        found = {
            "dump of Postgres (text only)": self._counts.dump(TEXT.encode()),
            "Redis": self._counts.redis(),
            "spools": self._counts.files(self._spool),
            "logs of workers": self._counts.files(data / "workers" / "logs"),
        }
        topics = (*_RETAINED, *_KEPT_LAST) if self._cleans else ()
        return found | {each.name: self._count(each) for each in topics}

    def cleaned(self) -> dict[str, int]:
        """Let the broker clean, and the marks go; return the bytes by place that are left."""
        if self._cleans:
            for topic in _RETAINED:
                self._configure(topic, {"retention.ms": "1"})
            self._until(lambda: not any(map(self._count, _RETAINED)))
            for topic in _RETAINED:
                self._configure(topic, {})
            for topic in _KEPT_LAST:
                self._configure(topic, _COMPACTED)
        self._until(self._compacted)
        return self.counts()

    def _compacted(self) -> bool:
        if self._counts.redis():
            return False
        if not self._cleans:
            return True
        self._later += 1  # closes the segments with what was written before
        self._emit(_run("other", f"later-{self._later}", "of another user"))
        self._drain()
        return not any(map(self._count, _KEPT_LAST))

    def _count(self, topic: Topic) -> int:
        return asyncio.run(self._counts.topic(topic))

    def _emit(self, events: list[dict[str, Any]]) -> None:
        file = self._folder / "events.jsonl"
        file.write_text("".join(json.dumps(each) + "\n" for each in events))
        spool = {"HEADSTART_SPOOL": str(self._folder / "sent")}
        run_headstart(self._system.addresses, self._folder, "emit", str(file), settings=spool)
        file.unlink()

    def _run(self, *command: str) -> None:
        run_headstart(self._system.addresses, self._folder, *command)

    def _drain(self) -> None:
        if not self._system.drain(PATIENCE_S):
            raise RuntimeError("the workers did not come to the end of the log")

    def _until(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds, or give up: what is left then is a result."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition() and time.monotonic() < deadline:
            self._system.check()
            time.sleep(0.5)

    def _configure(self, topic: Topic, changes: Mapping[str, str]) -> None:
        """Give a topic its own settings, but for `changes`."""

        async def run() -> None:
            resource = ConfigResource(
                ConfigResourceType.TOPIC, topic.name, topic.configuration() | dict(changes)
            )
            async with admin_client(self._system.addresses.kafka) as admin:
                for answer in await admin.alter_configs([resource]):
                    if any(code for code, *_ in answer.resources):
                        raise RuntimeError(f"the broker refused the settings: {answer}")

        asyncio.run(run())


def _run(user: str, name: str, text: str) -> list[dict[str, Any]]:
    """Return the events of one run, with the text in all that a run has."""
    common = {
        "tenant": TENANT, "workflow_type": "refund", "workflow_id": name, "user_id": user,
        "timestamp": time.time_ns() // 1_000_000,
    }  # fmt: skip
    context = {"domain": "retail", "note": text}
    guess = {"was_correct": True, "speculated": True}
    said = {"query": text, "response": text, "outcome": "success", "context": context}
    called = {"context": context, "prediction": guess, "arguments": {"of": text}}
    task = {"event_type": "task_complete", "task_id": "1", "tool_id": "find", "confidence": 0.9}
    return [
        common | task | {"id": new_id(), "data": called},
        common | {"id": new_id(), "event_type": "workflow_complete", "data": said},
    ]
