"""Several executors on one file of runs: each alone, with snapshots, with one state that is fresh.

The runs of a domain are given to the executors in turn, one run after the other. Where they share,
each decision goes through the form of an event into one `FleetModel`, and all executors load its
snapshot after every `REFRESHED` runs of the domain; if they answer with values that it asks for,
they load another one at once, because a worker serves what has changed within seconds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from headstart.prediction.interface import Predictor, RunPredictor
from headstart.prediction.predictor import CallPredictor
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.shared.shared_predictor import SharedCallPredictor
from replay.evaluation.snapshot_readers import SnapshotReader

REFRESHED: Final = 25
LIMIT: Final = 256_000  # bytes of a snapshot
LOCAL, SNAPSHOT, ALONE, FRESH = "snapshot + local", "snapshot", "alone", "always fresh"
KINDS: Final = (LOCAL, SNAPSHOT, ALONE, FRESH)
_NAME: Final = re.compile(f"(\\d+) executors, ({'|'.join(map(re.escape, KINDS))})")
SENTENCE: Final = (
    "the runs of a domain are given to the executors in turn, one after the other; all load a "
    f"snapshot of at most {LIMIT:,} bytes after every {REFRESHED} runs of the domain, and values "
    "that it asks for at once; a run without a user counts as a writer of its own; always fresh: "
    "one predictor for all runs"
)


class LoneExecutors:
    """Executors of which each learns from its own runs only; one executor is always fresh."""

    def __init__(self, count: int) -> None:
        self._executors = [CallPredictor() for _ in range(count)]
        self._runs = 0

    def run(self, *, agent: str = "", user_id: str = "") -> RunPredictor:
        """Begin a run at the next executor."""
        executor = self._executors[self._runs % len(self._executors)]
        self._runs += 1
        return executor.run(agent=agent, user_id=user_id)

    def to_bytes(self) -> bytes:
        """Return the state of the first executor."""
        return self._executors[0].to_bytes()


class SharingExecutors:
    """Executors that load snapshots of what they learn together.

    Without `learns_locally`, guesses come from the last snapshot alone.
    """

    def __init__(self, count: int, *, learns_locally: bool, limit: int = LIMIT) -> None:
        self._fleet = FleetModel()
        self._limit = limit
        self._reader = None if learns_locally else SnapshotReader(self._fleet.snapshot(limit))
        self._executors = [SharedCallPredictor(self._apply) for _ in range(count)]
        self._runs = 0

    def run(self, *, agent: str = "", user_id: str = "") -> RunPredictor:
        """Begin a run at the next executor."""
        executor = self._executors[self._runs % len(self._executors)]
        if self._runs and self._runs % REFRESHED == 0:
            self._refresh()
        self._runs += 1
        run = executor.run(agent=agent, user_id=user_id)
        return self._reader.run(run, agent=agent, user_id=user_id) if self._reader else run

    def _refresh(self) -> None:
        for _ in range(2):
            snapshot, events = self._fleet.snapshot(self._limit), self._fleet.version
            for each in self._executors:
                each.load(snapshot)
            if self._fleet.version == events:
                break
        if self._reader:
            self._reader = SnapshotReader(self._fleet.snapshot(self._limit))

    def to_bytes(self) -> bytes:
        """Return the snapshot."""
        return self._fleet.snapshot(self._limit)

    def _apply(self, event: Mapping[str, Any]) -> None:
        self._fleet.apply(event)


def group_names(count: int) -> list[str]:
    """Return the names under which each kind of group is evaluated."""
    return [f"{count} executors, {kind}" for kind in KINDS]


def maker_of_group(name: str) -> Callable[[], Predictor] | None:
    """Return what makes the group with a name of `group_names()`, as a predictor; else None."""
    found = _NAME.fullmatch(name)
    return group_maker(int(found[1]), found[2]) if found else None


def group_maker(count: int, kind: str) -> Callable[[], Predictor]:
    """Return what makes a group of executors, as a predictor. `kind`: of `KINDS`."""
    if kind == FRESH:
        return lambda: LoneExecutors(1)
    if kind == ALONE:
        return lambda: LoneExecutors(count)
    return lambda: SharingExecutors(count, learns_locally=kind == LOCAL)
