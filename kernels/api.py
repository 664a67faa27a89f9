"""All kernels under one name: what `kernels.loader` loads and `kernels()` of processing returns.

Numba compiles them for the machine in 10 to 20 s and caches the result; they run without the
interpreter's lock and compute the same results as the Python code (laws in the tests).
"""

# ruff: noqa: F401 - callers reach these names through the loaded module

from __future__ import annotations

from kernels.event_scanner import ABSENT, APART, NEXT_KEY, keys, scan
from kernels.layout import (
    AT,
    CONFIDENCE,
    COST,
    EXECUTION,
    FIELDS,
    FLAGS,
    GAIN,
    INTEGERS,
    LARGEST_MS,
    LEVELS,
    MAX_EVENT_BYTES,
    MAX_FRAME_BYTES,
    MAX_FRAME_EVENTS,
    MAX_IDENTIFIER,
    MAX_SPOOL,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    MOST_LEVELS,
    NUMBERS,
    PATH,
    POSITION,
    SPANS,
    SPOOL,
    SPOOL_KEY,
    TASK,
    TENANT,
    TOP_LEVELS,
    TYPE,
    WORKFLOW,
)
from kernels.learning import RULES, rule_of, teach
from kernels.record_batches import (
    ALL,
    ATTRIBUTES,
    BEFORE_LENGTH,
    BYTES,
    CODEC,
    COLUMNS,
    COMPRESSED,
    CURSOR,
    HEADER,
    HEADERS,
    KEY,
    NEXT,
    OFFSET,
    RECORDS,
    STATE,
    TAKEN,
    TIMESTAMP,
    VALUE,
    records_in,
    unpack,
)
