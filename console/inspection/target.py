"""The system to inspect: addresses and a data directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from processing.worker_report import MEMORY, SPANS


@dataclass(frozen=True)
class InspectionTarget:
    """One system. `health`: where its first worker answers health checks, host:port, or empty.

    `spans_topic`: the topic that its worker `spans` reads, or empty.
    """

    kafka: str
    postgres: str
    redis: str
    data: Path
    health: str = ""
    spans_topic: str = ""
    memory: bool = True

    @property
    def optional_workers(self) -> tuple[str, ...]:
        """Workers that run because of a setting."""
        return (*((MEMORY,) if self.memory else ()), *((SPANS,) if self.spans_topic else ()))
