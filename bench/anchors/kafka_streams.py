"""The anchor of `process` on the JVM: Kafka Streams, built from `streams/Thresholds.java`."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Final, NamedTuple

from deploy.local.child_process import Ending
from deploy.local.kafka_jars import kafka_jars
from deploy.local.process_group import ProcessGroup

_NAME: Final = "kafka-streams"
_SOURCE: Final = Path(__file__).with_name("streams") / "Thresholds.java"
_ENDING: Final = Ending(signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)
_PATIENCE_S: Final = 900.0


class Took(NamedTuple):
    """Events per second, up to the last record and up to the last flush and commit."""

    processing: float
    committed: float


def available() -> bool:
    """Return whether Java and Maven are here."""
    return bool(shutil.which("java") and shutil.which("mvn"))


def kafka_streams(kafka: str, folder: Path, events: int) -> Took:
    """Drain the events topic once. Raises `StackError` where it cannot be built or run."""
    group = ProcessGroup(folder)
    group.claim(_NAME)
    try:
        jars = kafka_jars(group, _NAME, _NAME)
        argv = ["java", "-Xmx512m", "-cp", f"{jars}/*", str(_SOURCE)]
        argv += [kafka, str(folder / "streams-state"), str(events)]
        child = group.spawn(_NAME, argv, _ENDING)
        child.finish(_PATIENCE_S, "see its log")
        group.forget(child)
        lines = [line.split() for line in child.tail() if line.startswith("took ")]
        if not lines:
            raise child.failure("did not print how long it took")
        return Took(*(events / (int(nanoseconds) / 1e9) for nanoseconds in lines[-1][1:]))
    finally:
        group.close()
