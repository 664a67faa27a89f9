"""What an agent takes from outside and a simulation replaces: clocks, the process's end, tuning.

Log events need no replacement: structlog is configured for the whole process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from agents.fatal import exit_fatally
from agents.health.stall_guard import StallGuard, running_s
from headstart.events.schema import new_id
from processing.control.default_merging import ReportTuning
from processing.state.tombstones import MARKER_RETENTION_S, START_MARKER_RETENTION_S


@dataclass(frozen=True)
class Clocks:
    """Clocks, and ids that begin with a time."""

    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """Unix ms."""
    monotonic_s: Callable[[], float] = time.monotonic
    running_s: Callable[[], float] = running_s
    """Monotonic, and also runs while the machine sleeps."""
    new_id: Callable[[int], str] = new_id
    """Returns a new id, from Unix ms."""


@dataclass(frozen=True)
class Tuning:
    """How often, how much and how long; a simulation, which is slower, has other numbers."""

    redis_interval_s: float = 1.0
    """How soon what waits for Redis is tried again, and a Redis that forgot is noticed."""
    tidy_interval_s: float = 10.0
    """How often the changelog is read for rows of others: well inside its compaction lag, and soon
    enough to rewrite it for the worker that restores after two kills in a row."""
    clock_interval_s: float = 10.0
    """How often it is checked which partitions need a clock record."""
    checkpoint_s: float = 0.25
    """How long a checkpoint collects fetches: what is not committed is done again after a kill."""
    backlog_checkpoint_s: float = 2.0
    """The same while catching up with a backlog."""
    idle_s: float = 0.5
    """How long at most a checkpoint waits for a fetch that does not come."""
    rewrite_after: int = 20_000
    """Records of the changelog after which a small table is rewritten: they are read in .1 s."""
    rewrite_factor: int = 4
    """The same of a large table, in its rows: a quarter more to append, four times less to restore
    than compaction would ever leave."""
    rebuild_checkpoint_bytes: int = 2_000_000
    """Of the rows of one checkpoint of a rebuild; each is published before the next is sent."""
    check_offsets_s: float = 5.0
    """How often a sink compares the offsets that it stored with those in Postgres; 0: never."""
    compared_rows: int = 100
    """Contexts that are compared with Redis in one step."""
    delete_after_s: float = MARKER_RETENTION_S
    delete_starts_after_s: float = START_MARKER_RETENTION_S
    """See `processing.state.tombstones`."""
    reports: ReportTuning = field(default_factory=ReportTuning)


@dataclass(frozen=True)
class Environment:
    """The world around the agents of one worker."""

    clock: Clocks = field(default_factory=Clocks)
    exit: Callable[[str, BaseException], None] = exit_fatally
    """Ends the process on an error; given where it happened."""
    stall_guard: Callable[[], StallGuard] = StallGuard
    tuning: Tuning = field(default_factory=Tuning)
