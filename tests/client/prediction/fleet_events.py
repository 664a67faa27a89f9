"""Executors that share through one `FleetModel`, and records that no honest executor makes."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from typing import Any

from headstart.prediction.decision_record import (
    Candidate,
    DecisionRecord,
    LearnedCall,
    LearnedLeaf,
    LearnedRanking,
)
from headstart.prediction.shared import record_limits as limits
from headstart.prediction.shared.decision_events import decision_event
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.shared.record_writing import record_bytes
from headstart.prediction.shared.shared_predictor import SharedCallPredictor
from headstart.prediction.stable_hash import MASK


class Fleet:
    """Executors whose events are applied at once, and kept."""

    def __init__(self, count: int = 1, hash_key: bytes = b"") -> None:
        self.model = FleetModel()
        self.events: list[dict[str, Any]] = []
        self.executors = [SharedCallPredictor(self.emit, hash_key=hash_key) for _ in range(count)]

    def emit(self, event: Mapping[str, Any]) -> None:
        """Keep and apply an event."""
        self.events.append(copy.deepcopy(dict(event)))
        self.model.apply(event)

    def share(self) -> None:
        """Let every executor load the snapshot, then one with the values that were asked for."""
        for _ in range(2):
            snapshot = self.model.snapshot()
            for executor in self.executors:
                assert executor.load(snapshot)


def event_of(record: DecisionRecord, sequence: int = 1, writer: int = 1) -> dict[str, Any]:
    """Return the event of a record."""
    return decision_event("e0123456789abcdef", sequence, 5, writer, record_bytes(record))


class ForeignRecords:
    """Records within the limits that are otherwise arbitrary, often at the limits."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._pool = [self._chance.getrandbits(60) for _ in range(40)]

    def record(self) -> DecisionRecord:
        """Return a record."""
        calls = tuple(self._call() for _ in range(self._chance.choice((0, 1, 1, 2))))
        return DecisionRecord(
            (limits.ROOT, *(self._hash() for _ in range(limits.CONTEXTS - 1))),
            tuple(self._hash() for _ in range(self._up_to(limits.MOST_WORDS))),
            tuple((self._name(), self._up_to(16), self._up_to(16)) for _ in range(self._up_to(9))),
            self._name(), calls, self._ranking(),
            tuple(self._hash() for _ in range(self._up_to(limits.MOST_MEMORY))), self._hash(),
        )  # fmt: skip

    def _hash(self) -> int:
        kind = self._chance.random()
        if kind < 0.1:
            return self._chance.choice((0, 1, 2, MASK))
        return self._chance.choice(self._pool) if kind < 0.8 else self._chance.getrandbits(60)

    def _up_to(self, most: int) -> int:
        return self._chance.choice((0, 1, most, self._chance.randint(0, most)))

    def _name(self) -> str:
        kind = self._chance.random()
        if kind < 0.1:
            return ""
        return f"tool{self._chance.randrange(9)}" if kind < 0.8 else self._chance.choice("xé") * 200

    def _call(self) -> LearnedCall:
        leaves = tuple(self._leaf() for _ in range(self._chance.choice((0, 1, 3, 12))))
        return LearnedCall((self._hash(), self._hash()), self._hash(), leaves)

    def _leaf(self) -> LearnedLeaf:
        templates = list(dict.fromkeys(self._hash() for _ in range(12)))
        constants = list(dict.fromkeys([0, *(self._hash() for _ in range(6))]))[1:]
        offered = [((each,), 0, self._up_to(15)) for each in templates]
        offered += [((), each, self._up_to(15)) for each in constants]
        right = self._chance.randint(-1, len(offered) - 1)
        found = tuple(self._spec() for _ in range(self._up_to(limits.MOST_FOUND)))
        return LearnedLeaf(
            self._hash(), self._hash(), tuple(offered), right, self._hash(), found
        )  # fmt: skip

    def _spec(self) -> tuple[int, ...]:
        kind = self._chance.choice(list(limits.HASH_PARTS))
        pick = (self._chance.randint(0, 3),) if kind in limits.HAS_PICK else ()
        return kind, *(self._hash() for _ in range(limits.HASH_PARTS[kind])), *pick

    def _ranking(self) -> LearnedRanking | None:
        calls = list(dict.fromkeys(self._hash() for _ in range(self._up_to(16))))
        if not calls:
            return None
        candidates = tuple(
            Candidate(
                self._name(), call, self._up_to(limits.LARGEST_PROBABILITY), self._up_to(3),
                self._chance.random() < 0.5,
            )
            for call in calls
        )  # fmt: skip
        made = self._chance.sample(range(len(calls)), self._up_to(min(2, len(calls))))
        return LearnedRanking(candidates, self._up_to(limits.LARGEST_PROBABILITY), tuple(made))
