"""Constants of the kernels: limits, columns, kinds of fields, and field names as words."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

MAX_EVENT_BYTES, MAX_FRAME_BYTES, MAX_FRAME_EVENTS = 262_144, 900_000, 1_000
MAX_IDENTIFIER, MAX_SPOOL = 256, 64
MIN_TIMESTAMP, MAX_TIMESTAMP = 946_684_800_000, 253_402_300_799_999
"""The limits of the event schema, repeated here because the cache of compiled code depends on the
text of these files only. A test compares them."""
LARGEST_MS: Final = 1e15
"""The largest gain and cost that is learned; compared by the same test."""
MOST_LEVELS: Final = 6
TOP_LEVELS: Final = ("user_id", "agent_id", "session_id", "tool_id")
"""Levels that are fields of the event itself."""

# Columns of an event's integers. A span takes two: its begin and end in the bytes, -1 for none.
# PATH and SPOOL_KEY: the numbers of its path, and of its spool and key, within the scan.
AT, FLAGS, POSITION, PATH, SPOOL_KEY, WORKFLOW, TASK = 0, 1, 2, 3, 4, 5, 7
INTEGERS: Final = 9
NUMBERS: Final = 4
# These are kept only of the first event of a path, or of a spool and key.
TENANT, TYPE, SPOOL, TOP, LEVELS = 9, 11, 13, 15, 23
SPANS: Final = LEVELS + 2 * MOST_LEVELS
CONFIDENCE, GAIN, COST, EXECUTION = 0, 1, 2, 3
# Bits of `FLAGS` are those of `processing.state.counters`.
# Kinds of fields: what the value is, or where it goes.
(
    K_AT, K_CONFIDENCE, K_GAIN, K_COST, K_EXECUTION, K_CORRECT, K_SPECULATED, K_MODE, K_TYPE,
    K_ID, K_DATA, K_PREDICTION, K_RESULT, K_CONTEXT, K_ORIGIN, K_TENANT, K_WORKFLOW_TYPE,
    K_WORKFLOW, K_TASK, K_USER, K_AGENT, K_SESSION, K_TOOL, K_IDENTIFIER, K_TEXT, K_FLAG,
    K_SCALAR, K_LIST, K_OUTCOME, K_SOURCE, K_NUMBER, K_NESTED,
) = range(32)  # fmt: skip
FIELDS: Final[tuple[dict[str, int], ...]] = (
    {
        "id": K_ID, "event_type": K_TYPE, "tenant": K_TENANT, "workflow_type": K_WORKFLOW_TYPE,
        "workflow_id": K_WORKFLOW, "timestamp": K_AT, "task_id": K_TASK, "user_id": K_USER,
        "agent_id": K_AGENT, "session_id": K_SESSION, "tool_id": K_TOOL, "success": K_FLAG,
        "confidence": K_CONFIDENCE, "data": K_DATA, "origin": K_ORIGIN,
    },
    {
        "context": K_CONTEXT, "query": K_TEXT, "query_hash": K_TEXT, "response": K_TEXT,
        "concepts": K_LIST, "domains": K_LIST, "plan": K_SCALAR, "agents_used": K_LIST,
        "insights": K_LIST, "attachments": K_NESTED, "prediction": K_PREDICTION,
        "result": K_RESULT, "decision": K_NESTED, "outcome": K_OUTCOME, "target_id": K_TEXT,
        "accepted": K_FLAG, "reward": K_NUMBER, "source": K_SOURCE,
    },
    {
        "tool_id": K_IDENTIFIER, "mode": K_MODE, "reasoning": K_TEXT, "was_correct": K_CORRECT,
        "speculated": K_SPECULATED, "failed": K_FLAG, "not_startable": K_IDENTIFIER,
        "calibrated": K_FLAG, "evidence": K_NESTED,
    },
    {"output": K_SCALAR, "execution_time_ms": K_EXECUTION, "gain_ms": K_GAIN, "cost_ms": K_COST},
)  # fmt: skip
"""Every field of the schema: of an event, its data, its prediction, its result."""
OF_EVENT, OF_DATA, OF_PREDICTION, OF_RESULT = range(4)
REQUIRED: Final = (
    1 << K_ID | 1 << K_TYPE | 1 << K_TENANT | 1 << K_WORKFLOW_TYPE | 1 << K_WORKFLOW | 1 << K_AT
    | 1 << K_CONFIDENCE | 1 << K_DATA
)  # fmt: skip
ALWAYS: Final = REQUIRED | 1 << K_CORRECT
"""Fields that must not be null."""

QUOTE, COMMA, COLON, OPEN, CLOSE, LEFT, RIGHT = 34, 44, 58, 123, 125, 91, 93


def _word(text: bytes) -> int:
    """Return up to eight bytes as the little-endian number that they are in memory."""
    return int.from_bytes(text[:8].ljust(8, b"\0"), "little")


def _words(text: bytes) -> tuple[int, int, int, int]:
    """Return a text of up to 24 bytes for comparison: first, middle and last eight, length."""
    long, longer = len(text) > 8, len(text) > 16
    middle, last = _word(text[8:]) if longer else 0, _word(text[-8:]) if long else 0
    return _word(text), middle, last, len(text)


SLOT_BITS: Final = 7
LONGEST: Final = 24
STEP: Final = 6_364_136_223_846_793_005
"""Multiplier of the generator that proposes factors (Knuth's MMIX): random, but reproducible."""


def _slot(first: int, last: int, length: int, factor: int) -> int:
    mixed = (first ^ (last << 1 & (1 << 64) - 1) ^ length) * factor
    return (mixed & (1 << 64) - 1) >> (64 - SLOT_BITS)


def _tables() -> tuple[Any, Any]:
    """Return a perfect hash table of the fields of each object, and the factors of the hashes."""
    factor = 1
    slots = np.zeros((len(FIELDS), 1 << SLOT_BITS, 5), np.uint64)
    factors = np.zeros(len(FIELDS), np.uint64)
    for of, fields in enumerate(FIELDS):
        found: dict[int, tuple[int, ...]] = {}
        while len(found) < len(fields):
            factor, found = (factor * STEP + 2) & (1 << 64) - 1, {}
            for name, kind in fields.items():
                words = _words(name.encode())
                found[_slot(words[0], words[2], words[3], factor)] = (*words, kind)
        factors[of] = factor
        for slot, entry in found.items():
            slots[of, slot] = entry
    return slots, factors


SLOTS, FACTORS = _tables()
MASKS: Final = np.array([(1 << 8 * length) - 1 for length in range(9)], np.uint64)
SHIFT: Final = np.uint64(64 - SLOT_BITS)
ONE: Final = np.uint64(1)


def _literals(*texts: bytes) -> Any:
    return np.array([_words(text) for text in texts], np.uint64)


TYPES: Final = _literals(b"task_complete")
MODES: Final = _literals(b"speculative", b"suggestion", b"explicit")
OUTCOMES: Final = _literals(b"success", b"failure", b"partial", b"aborted")
SOURCES: Final = _literals(b"user", b"system")
FOUR, FIVE = np.uint64((1 << 32) - 1), np.uint64((1 << 40) - 1)
TRUE, NULL = np.uint64(_word(b"true")), np.uint64(_word(b"null"))
FALSE: Final = np.uint64(_word(b"false"))
ONES, HIGHS = np.uint64(_word(b"\x01" * 8)), np.uint64(_word(b"\x80" * 8))
QUOTES, SLASHES = np.uint64(_word(b'"' * 8)), np.uint64(_word(b"\\" * 8))
SPACES: Final = np.uint64(_word(b" " * 8))
