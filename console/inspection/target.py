"""The system to inspect: addresses and a data directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class InspectionTarget:
    """One system. `health`: where its first worker answers health checks, host:port, or empty."""

    kafka: str
    postgres: str
    redis: str
    data: Path
    health: str = ""
