"""Generates the JSON Schemas of the topics from the record types.

`python -m topics.schema.json_schema` writes the files under topics/schema/json/; a test checks that
they are up to date.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import orjson

from headstart.events.schema import Event
from topics.commands.messages import Begin, ModeCommand, ThresholdOverride
from topics.notices.messages import Notice
from topics.schema.event_structs import derive

FOLDER = Path(__file__).parent / "json"


class Deviation(msgspec.Struct):
    """What one level of a context path has learned beyond the level above it.

    The deviations of a path add up, coarse to fine: a = 1 + the slopes, b = the intercepts. A
    guess of confidence p is right with probability sigma(a logit(p) + b). `cold` is what a context
    that is not yet known adds to b, times 1 / (1 + outcomes / 2) of the finest level.
    """

    slope: float
    intercept: float
    slope_variance: float
    covariance: float
    intercept_variance: float
    cold: float
    cold_variance: float
    outcomes: float


class Counts(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """What happened in a context, as an array of whole numbers that only grow.

    Of each mode how many outcomes and how many of them were right: `explicit` (asked),
    `suggestion`, `speculative` (started early). Sums: `confidence` in millionths, `execution` (of
    `executed` outcomes), `wasted` by wrong and `saved` by right speculations, in microseconds.
    `feedback` of users, and how much of it `accepted`.
    """

    explicit: int = 0
    explicit_right: int = 0
    suggestion: int = 0
    suggestion_right: int = 0
    speculative: int = 0
    speculative_right: int = 0
    confidence: int = 0
    executed: int = 0
    execution: int = 0
    wasted: int = 0
    saved: int = 0
    feedback: int = 0
    accepted: int = 0


class PublishedThreshold(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The thresholds of one context, as published to Redis and to `headstart.thresholds`.

    A prediction whose confidence is at or above `speculate` is worth starting early, one at or
    above `suggest` is worth showing. `epoch` and `offset` are the version: compare them as two
    integers, the higher pair is the newer. `at`: time of the newest outcome, Unix ms.
    `speculate` is for the context's average gain and cost; where there is a `deviation`, a reader
    can compute the threshold of its own (docs/reference/redis.md, "Calibration"). `deleted`: the
    context has gone, and those above it answer. `gain` and `cost` (ms): what a right guess saves
    and a wrong one wastes here, of late; 0: not known.
    """

    tenant: str
    workflow_type: str
    path: str
    speculate: float
    suggest: float
    epoch: int
    offset: int
    outcomes: int
    learner: str
    at: int
    deviation: Deviation | None = None
    deleted: bool = False
    gain: float = 0.0
    cost: float = 0.0
    counts: Counts | None = None


def schemas() -> dict[str, dict[str, Any]]:
    """Return JSON Schema documents by file name."""
    documented: dict[str, Any] = {
        "event": derive(Event, documented=True),
        "threshold": PublishedThreshold,
        "notice": Notice,
        "command": ThresholdOverride | ModeCommand | Begin,
    }
    return {
        f"{name}.schema.json": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **msgspec.json.schema(kind),
        }
        for name, kind in documented.items()
    }


def render(document: dict[str, Any]) -> bytes:
    """Return a schema document as stored in the repository."""
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def main() -> None:
    """Write every schema file."""
    FOLDER.mkdir(exist_ok=True)
    for name, document in schemas().items():
        (FOLDER / name).write_bytes(render(document))


if __name__ == "__main__":
    main()
