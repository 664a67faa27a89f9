"""What the threshold agent does with many events at once, compiled.

Numba compiles it for the machine that it runs on, in ten to twenty seconds, and keeps the result;
it runs without the interpreter's lock. `agents/compiling.py` looks after that, `machine_code` has
it for whoever can use it. To the same end as what stands elsewhere in Python (laws in the tests).
"""

from __future__ import annotations

from processing.compiled.fields import (
    ASKED,
    AT,
    CONFIDENCE,
    CORRECT,
    COST,
    EXECUTION,
    FIELDS,
    FLAGS,
    GAIN,
    INTEGERS,
    LANE,
    LARGEST_MS,
    LEVELS,
    MAX_EVENT_BYTES,
    MAX_FRAME_BYTES,
    MAX_FRAME_EVENTS,
    MAX_IDENTIFIER,
    MAX_SPOOL,
    MAX_TIMESTAMP,
    MOST_LEVELS,
    NUMBERS,
    PLACE,
    POSITION,
    SPANS,
    SPECULATED,
    SPOOL,
    SUGGESTED,
    TASK,
    TENANT,
    TOP_LEVELS,
    TYPE,
    WORKFLOW,
)
from processing.compiled.rules import RULES, rule_of, teach
from processing.compiled.scanning import scan

__all__ = [
    "ASKED",
    "AT",
    "CONFIDENCE",
    "CORRECT",
    "COST",
    "EXECUTION",
    "FIELDS",
    "FLAGS",
    "GAIN",
    "INTEGERS",
    "LANE",
    "LARGEST_MS",
    "LEVELS",
    "MAX_EVENT_BYTES",
    "MAX_FRAME_BYTES",
    "MAX_FRAME_EVENTS",
    "MAX_IDENTIFIER",
    "MAX_SPOOL",
    "MAX_TIMESTAMP",
    "MOST_LEVELS",
    "NUMBERS",
    "PLACE",
    "POSITION",
    "RULES",
    "SPANS",
    "SPECULATED",
    "SPOOL",
    "SUGGESTED",
    "TASK",
    "TENANT",
    "TOP_LEVELS",
    "TYPE",
    "WORKFLOW",
    "rule_of",
    "scan",
    "teach",
]
