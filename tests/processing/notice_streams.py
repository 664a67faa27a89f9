"""Published values of contexts that drift or flood, and the notices that they give."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from processing.notices import Key, NoticeState, decode_state, needed, take
from topics.notices.messages import Notice
from topics.schema.json_schema import Counts, PublishedThreshold

TOP = "workflow_type=refund"
RETAIL = f"{TOP}/domain=retail"


def value(
    path: str, offset: int, outcomes: int, right: int, sure: float, **more: object
) -> PublishedThreshold:
    counts = Counts(speculative=outcomes, speculative_right=right, confidence=int(sure * 1e6))
    given = {
        "tenant": "acme", "workflow_type": "refund", "path": path, "speculate": 0.9, "suggest": 0.7,
        "epoch": 3, "offset": offset, "outcomes": outcomes, "learner": "hops", "at": 10 * offset,
        "counts": counts, **more,
    }  # fmt: skip
    return PublishedThreshold(**given)  # type: ignore[arg-type]


def drifting(seed: int, outcomes: int, drift: int) -> list[PublishedThreshold]:
    """Return the values of one context, right half as often from outcome `drift` on."""
    chance, right, sure, values = random.Random(seed), 0, 0.0, []
    for number in range(1, outcomes + 1):
        confidence = chance.uniform(0.6, 1.0)
        right += chance.random() < (confidence if number < drift else confidence / 2)
        sure += confidence
        values.append(value(RETAIL, number, number, right, sure))
    return values


class Stored:
    """What a database would hold, and a process that is new at every batch."""

    def __init__(self) -> None:
        self.newest: dict[Key, NoticeState] = {}
        self.states: dict[Key, bytes] = {}
        self.notices: list[Notice] = []

    def take(self, values: Sequence[PublishedThreshold]) -> None:
        placed = [(0, each) for each in values]
        known = {
            key: self.newest.get(key, NoticeState())._replace(
                state=decode_state(self.states.get(key))
            )
            for key in needed(placed)
        }
        found = take(placed, known)
        self.newest |= found.known
        for key, state in found.changed.items():
            if state is None:
                self.states.pop(key, None)
            else:
                self.states[key] = state
        self.notices += [notice for _partition, notice in found.notices]


def run(values: Sequence[PublishedThreshold], cuts: Iterable[int] = ()) -> Stored:
    stored, begin = Stored(), 0
    for end in [*sorted(set(cuts)), len(values)]:
        stored.take(values[begin:end])
        begin = end
    return stored


def flooded(outcomes: int, flood: range) -> list[PublishedThreshold]:
    """Return the values of a context and of its twenty users, one of whom floods for a while."""
    chance, at, values = random.Random(3), 1e9, []
    users = [*(f"u{n}" for n in range(19)), "b%25d"]
    counts = dict.fromkeys(["", *users], 0)
    for number in range(outcomes):
        flooding = number in flood
        at += chance.expovariate(1 / (10 if flooding else 100))
        user = users[-1] if flooding and chance.random() < 0.95 else chance.choice(users)
        for name in ("", user):
            counts[name] += 1
            path = f"{RETAIL}/user_id={name}" if name else RETAIL
            n = counts[name]
            values.append(value(path, number, n, n // 2, 0.5 * n, at=int(at)))
    return values


def notice(name: str, **fields: Any) -> Notice:
    given = {
        "id": name, "kind": "drift", "tenant": "acme", "workflow_type": "refund", "path": RETAIL,
        "at": 7, "evidence": {"now": 0.1 + 0.2, "user": "ä\t\\\"{}"}, **fields,
    }  # fmt: skip
    return Notice(**given)
