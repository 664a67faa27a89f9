"""Kernel: reads the fields of one event into a row; see `scan`."""

# ruff: noqa: PLR0912, PLR0913, PLR0917, PLR1714, SIM109 - compiled: branches are flat

from __future__ import annotations

from typing import Any

from kernels.json_tokens import (
    inlined,
    is_id,
    key_end,
    kind_of,
    list_end,
    one_of,
    read_number,
    rounded,
    same,
    scalar_end,
    string_end,
)
from kernels.layout import (
    ALWAYS,
    AT,
    CLOSE,
    COMMA,
    FALSE,
    FIVE,
    FLAGS,
    FOUR,
    K_AT,
    K_CONFIDENCE,
    K_CONTEXT,
    K_CORRECT,
    K_DATA,
    K_EXECUTION,
    K_FLAG,
    K_ID,
    K_IDENTIFIER,
    K_LIST,
    K_MODE,
    K_NESTED,
    K_NUMBER,
    K_ORIGIN,
    K_OUTCOME,
    K_PREDICTION,
    K_RESULT,
    K_SCALAR,
    K_SOURCE,
    K_SPECULATED,
    K_TASK,
    K_TENANT,
    K_TEXT,
    K_TYPE,
    K_USER,
    K_WORKFLOW,
    K_WORKFLOW_TYPE,
    LARGEST_MS,
    LEFT,
    LEVELS,
    MAX_EVENT_BYTES,
    MAX_IDENTIFIER,
    MAX_SPOOL,
    MAX_TIMESTAMP,
    MIN_TIMESTAMP,
    MODES,
    NULL,
    OF_DATA,
    OF_EVENT,
    OF_PREDICTION,
    OF_RESULT,
    OPEN,
    OUTCOMES,
    POSITION,
    QUOTE,
    REQUIRED,
    RIGHT,
    SOURCES,
    SPOOL,
    TASK,
    TENANT,
    TOP,
    TRUE,
    TYPE,
    TYPES,
    WORKFLOW,
)
from processing.state.counters import CORRECT, SPECULATED, SUGGESTED


@inlined
def read_origin(w: Any, buf: Any, at: int, end: int, row: Any) -> int:
    """Read [spool id, position]; return where it ends, -1 where it is not plain."""
    if at + 1 >= end or buf[at] != LEFT or buf[at + 1] != QUOTE:
        return -1
    after = string_end(w, buf, at + 2, end)
    if after < 0 or not 1 <= after - at - 2 <= MAX_SPOOL:
        return -1
    if after + 1 >= end or buf[after + 1] != COMMA:
        return -1
    row[SPOOL], row[SPOOL + 1] = at + 2, after
    at, digits, fraction = read_number(buf, after + 2, end)
    if at < 0 or fraction or at >= end or buf[at] != RIGHT:
        return -1
    row[POSITION] = digits
    return at + 1


@inlined
def read_context(w: Any, buf: Any, at: int, end: int, row: Any, levels: Any, names: Any) -> int:
    """Read an object of scalars, and keep those that are levels; return where it ends, or -1."""
    if at >= end or buf[at] != OPEN:
        return -1
    at += 1
    if at < end and buf[at] == CLOSE:
        return at + 1
    while at < end and buf[at] == QUOTE:
        key = at + 1
        after = key_end(w, buf, key, end)
        if after < 0:
            return -1
        at = after + 2
        until = scalar_end(w, buf, at, end)
        if until < 0 or until >= end:
            return -1
        for level in range(levels.shape[0]):
            if levels[level, 0] < 0 and same(
                buf, key, after, names, levels[level, 1], levels[level, 2]
            ):
                # Given twice, a number that becomes text, or too long: left to the decoder.
                span = LEVELS + 2 * level
                if row[span] >= 0 or buf[at] != QUOTE or until - at - 2 > MAX_IDENTIFIER:
                    return -1
                row[span], row[span + 1] = at + 1, until - 1
        if buf[until] == CLOSE:
            return until + 1
        if buf[until] != COMMA:
            return -1
        at = until + 1
    return -1


@inlined
def read_text(w: Any, buf: Any, at: int, end: int, kind: int, row: Any) -> int:
    """Read and check a string of a kind; return where it ends, or -1."""
    if at >= end or buf[at] != QUOTE:
        return -1
    begin, after = at + 1, string_end(w, buf, at + 1, end)
    if after < 0:
        return -1
    if kind == K_TEXT:
        return after + 1
    if kind == K_ID:
        return after + 1 if is_id(buf, begin, after) else -1
    if kind == K_TYPE:
        return after + 1 if one_of(w, begin, after, TYPES) >= 0 else -1
    if kind == K_MODE:
        mode = one_of(w, begin, after, MODES)
        if mode == 1:
            row[FLAGS] |= SUGGESTED
        return after + 1 if mode >= 0 else -1
    if kind == K_OUTCOME:
        return after + 1 if one_of(w, begin, after, OUTCOMES) >= 0 else -1
    if kind == K_SOURCE:
        return after + 1 if one_of(w, begin, after, SOURCES) >= 0 else -1
    if not 1 <= after - begin <= MAX_IDENTIFIER:
        return -1
    if kind == K_IDENTIFIER:
        return after + 1
    if kind == K_TENANT:
        span = TENANT
    elif kind == K_WORKFLOW_TYPE:
        span = TYPE
    elif kind == K_WORKFLOW:
        span = WORKFLOW
    elif kind == K_TASK:
        span = TASK
    else:
        span = TOP + 2 * (kind - K_USER)
    row[span], row[span + 1] = begin, after
    return after + 1


@inlined
def read_value(w: Any, buf: Any, at: int, end: int, kind: int, row: Any, numbers: Any) -> int:
    """Read the value of a field that is not nested; return where it ends, or -1."""
    if kind == K_SCALAR:
        return scalar_end(w, buf, at, end)
    word = w[at]
    if word & FOUR == NULL:
        return -1 if ALWAYS >> kind & 1 else at + 4
    if kind == K_FLAG or kind == K_CORRECT or kind == K_SPECULATED:
        if word & FOUR == TRUE:
            if kind != K_FLAG:
                row[FLAGS] |= CORRECT if kind == K_CORRECT else SPECULATED
            return at + 4
        return at + 5 if word & FIVE == FALSE else -1
    if kind <= K_EXECUTION:
        after, digits, fraction = read_number(buf, at, end)
        if after < 0:
            return -1
        if kind == K_AT:
            row[AT] = digits
            return -1 if fraction or not MIN_TIMESTAMP <= digits <= MAX_TIMESTAMP else after
        number = rounded(digits, fraction)
        numbers[kind - K_CONFIDENCE] = number
        return after if number <= (1.0 if kind == K_CONFIDENCE else LARGEST_MS) else -1
    if kind == K_LIST:
        return list_end(w, buf, at, end)
    if kind == K_NUMBER:
        return read_number(buf, at + 1 if at < end and buf[at] == 45 else at, end)[0]
    return -1 if kind == K_NESTED else read_text(w, buf, at, end, kind, row)


@inlined
def read_object(
    w: Any, buf: Any, at: int, end: int, of: int, row: Any, numbers: Any
) -> tuple[int, int]:
    """Read a prediction or a result; return where it ends, or -1, and the kinds of its fields."""
    seen = 0
    if at >= end or buf[at] != OPEN:
        return -1, 0
    at += 1
    if at < end and buf[at] == CLOSE:
        return at + 1, 0
    while at < end and buf[at] == QUOTE:
        after = key_end(w, buf, at + 1, end)
        if after < 0:
            return -1, 0
        kind = kind_of(w, at + 1, after, of)
        if kind < K_IDENTIFIER and seen >> kind & 1:
            return -1, 0
        seen |= 1 << kind
        at = read_value(w, buf, after + 2, end, kind, row, numbers)
        if at < 0 or at >= end:
            return -1, 0
        if buf[at] == CLOSE:
            return at + 1, seen
        if buf[at] != COMMA:
            return -1, 0
        at += 1
    return -1, 0


@inlined
def read_data(
    w: Any, buf: Any, at: int, end: int, row: Any, numbers: Any, levels: Any, names: Any
) -> tuple[int, int]:
    """Read an event's data; return where it ends, or -1, and the kinds of its prediction's."""
    seen = predicted = 0
    if at >= end or buf[at] != OPEN:
        return -1, 0
    at += 1
    while at < end and buf[at] == QUOTE:
        after = key_end(w, buf, at + 1, end)
        if after < 0:
            return -1, 0
        kind = kind_of(w, at + 1, after, OF_DATA)
        at = after + 2
        if kind < K_IDENTIFIER and seen >> kind & 1:
            return -1, 0
        seen |= 1 << kind
        if w[at] & FOUR == NULL:
            if kind == K_PREDICTION:
                return -1, 0
            at += 4
        elif kind == K_CONTEXT:
            at = read_context(w, buf, at, end, row, levels, names)
        elif kind == K_PREDICTION:
            at, predicted = read_object(w, buf, at, end, OF_PREDICTION, row, numbers)
        elif kind == K_RESULT:
            at, _ = read_object(w, buf, at, end, OF_RESULT, row, numbers)
        else:
            at = read_value(w, buf, at, end, kind, row, numbers)
        if at < 0 or at >= end:
            return -1, 0
        if buf[at] == CLOSE:
            return at + 1, predicted
        if buf[at] != COMMA:
            return -1, 0
        at += 1
    return -1, 0


@inlined
def read_event(
    w: Any, buf: Any, at: int, end: int, latest: int, row: Any, numbers: Any, levels: Any,
    names: Any,
) -> int:  # fmt: skip
    """Read one event into a row; return where it ends, or -1 where it is not plain."""
    row[:] = -1
    row[FLAGS] = 0
    numbers[:] = 0.0
    begin, seen, predicted, closed = at, 0, 0, False
    if at >= end or buf[at] != OPEN:
        return -1
    at += 1
    while at < end and buf[at] == QUOTE:
        after = key_end(w, buf, at + 1, end)
        if after < 0:
            return -1
        kind = kind_of(w, at + 1, after, OF_EVENT)
        at = after + 2
        if kind < K_IDENTIFIER and seen >> kind & 1:
            return -1
        seen |= 1 << kind
        if kind == K_DATA:
            at, predicted = read_data(w, buf, at, end, row, numbers, levels, names)
        elif kind == K_ORIGIN:
            at = read_origin(w, buf, at, end, row)
        else:
            at = read_value(w, buf, at, end, kind, row, numbers)
        if at < 0 or at >= end:
            return -1
        if buf[at] == CLOSE:
            closed = True
            break
        if buf[at] != COMMA:
            return -1
        at += 1
    if not closed or at + 1 - begin > MAX_EVENT_BYTES:
        return -1
    if seen & REQUIRED != REQUIRED or not predicted >> K_CORRECT & 1 or row[AT] > latest:
        return -1
    for level in range(levels.shape[0]):
        if levels[level, 0] >= 0:
            span, top = LEVELS + 2 * level, TOP + 2 * levels[level, 0]
            row[span], row[span + 1] = row[top], row[top + 1]
    return at + 1
