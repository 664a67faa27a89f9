"""CPU time of one Postgres backend, which no other work on the machine changes much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from psycopg import AsyncConnection


def backend_cpu_s(connection: AsyncConnection[Any]) -> float:
    """Return the seconds of CPU that the backend of a connection has used (Linux only)."""
    schedstat = Path(f"/proc/{connection.info.backend_pid}/schedstat")
    return int(schedstat.read_text().split()[0]) / 1e9
