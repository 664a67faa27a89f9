"""Kernel: reads the bytes of records into columns, where every event in them is plain.

Plain: a completion that states its own outcome, in printable ASCII without a backslash or a space
between its parts, with nothing nested but what the agent reads. The decoder accepts all that is
read here, and reads the same in it (a law in the tests). Anything else is not rejected, only left
to the decoder.
"""

# ruff: noqa: PLR0913, PLR0917 - compiled: branches are flat

from __future__ import annotations

from typing import Any, Final

import numpy as np

from kernels.event_parser import read_event
from kernels.json_tokens import inlined, kept, same
from kernels.layout import (
    COMMA,
    INTEGERS,
    LEFT,
    LEVELS,
    MAX_FRAME_BYTES,
    MAX_FRAME_EVENTS,
    PATH,
    RIGHT,
    SPOOL,
    SPOOL_KEY,
    TENANT,
    TYPE,
)

HASH: Final = np.uint64(1_099_511_628_211)
ABSENT, APART, NEXT_KEY = 0, 31, 10
"""What `keys` writes for a missing span, after a span, and after the last span of a key: bytes that
no plain text holds."""


@inlined
def hashed(buf: Any, row: Any, span: int, value: Any) -> Any:
    """Return the FNV-1a hash continued over a span, and over whether there is one."""
    begin, end = row[span], row[span + 1]
    value = (value ^ np.uint64(begin >= 0)) * HASH
    for at in range(begin, end):
        value = (value ^ np.uint64(buf[at])) * HASH
    return value


@inlined
def alike(buf: Any, one: Any, other: Any, first: int, last: int) -> bool:
    """Return whether two rows have the same tenant, workflow type, and spans `first` to `last`."""
    for span in (TENANT, TYPE):
        if not same(buf, one[span], one[span + 1], buf, other[span], other[span + 1]):
            return False
    for span in range(first, last, 2):
        if (one[span] < 0) != (other[span] < 0):
            return False
        if not same(buf, one[span], one[span + 1], buf, other[span], other[span + 1]):
            return False
    return True


@inlined
def group_of(
    buf: Any, row: Any, found: Any, known: int, slots: Any, basis: Any, first: int, last: int
) -> tuple[int, int]:
    """Return the number of a row's group, and how many groups are known then.

    Rows of a group have the same tenant, workflow type, and spans `first` to `last`.
    """
    value = hashed(buf, row, TYPE, hashed(buf, row, TENANT, basis))
    for span in range(first, last, 2):
        value = hashed(buf, row, span, value)
    slot = np.int64((value ^ value >> np.uint64(32)) & np.uint64(slots.size - 1))
    while slots[slot] >= 0:
        if alike(buf, row, found[slots[slot]], first, last):
            return slots[slot], known
        slot = (slot + 1) & (slots.size - 1)
    slots[slot] = known
    for span in range(row.size):
        found[known, span] = row[span]
    return known, known + 1


@kept
def scan(
    w: Any, buf: Any, begins: Any, ends: Any, latest: Any, levels: Any, names: Any, counts: Any,
    rows: Any, numbers: Any, paths: Any, spools: Any, path_slots: Any, spool_slots: Any, basis: Any,
    row: Any,
) -> tuple[int, int, int]:  # fmt: skip
    """Read records, each from its begin to its end in `buf`.

    `w`: at each index of `buf` the eight bytes from there on; a record with fewer bytes after its
    end is not read. `latest`: highest timestamp of each record's events, Unix ms. `levels`: each
    one's index in `TOP_LEVELS` or -1, and the span of its name in `names`. Slots: all -1, a power
    of two of them, more than rows. `basis`: start value of hashes, unknown to producers. `row`:
    scratch.

    Fills `counts` with the number of each record's events, -1 where one is not plain; `rows` and
    `numbers` of every event; `paths` and `spools` with the spans of the first event of each path,
    and of each spool and key. Returns how many events, paths and spools there are.
    """
    taken = known_paths = known_spools = 0
    last = LEVELS + 2 * levels.shape[0]
    for record in range(ends.size):
        begin, end, before = begins[record], ends[record], taken
        framed = begin < end and buf[begin] == LEFT
        at = begin + 1 if framed else begin
        plain = end < w.size and not (framed and end - begin > MAX_FRAME_BYTES)
        while plain:
            if taken >= numbers.shape[0]:
                plain = False
                break
            at = read_event(w, buf, at, end, latest[record], row, numbers[taken], levels, names)
            if at < 0:
                plain = False
                break
            row[PATH], known_paths = group_of(
                buf, row, paths, known_paths, path_slots, basis, LEVELS, last
            )
            if row[SPOOL] >= 0:
                row[SPOOL_KEY], known_spools = group_of(
                    buf, row, spools, known_spools, spool_slots, basis, SPOOL, SPOOL + 2
                )
            for column in range(INTEGERS):
                rows[taken, column] = row[column]
            taken += 1
            if not framed or at >= end or buf[at] != COMMA:
                break
            at += 1
        if plain and framed:
            plain = at < end and buf[at] == RIGHT and taken - before <= MAX_FRAME_EVENTS
            at += 1
        if plain and at == end:
            counts[record] = taken - before
        else:
            taken, counts[record] = before, -1
    return taken, known_paths, known_spools


@kept
def keys(buf: Any, groups: Any, spans: Any, into: Any) -> None:
    """Write the text of some spans of each group of a `scan` to `into`.

    Its size is exact: one byte more after each span, and one for each missing span.
    """
    at = 0
    for group in range(groups.shape[0]):
        for span in spans:
            begin, end = groups[group, span], groups[group, span + 1]
            if begin < 0:
                into[at] = ABSENT
                at += 1
            for place in range(begin, end):
                into[at] = buf[place]
                at += 1
            into[at] = APART
            at += 1
        into[at - 1] = NEXT_KEY
