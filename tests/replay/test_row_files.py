"""A changelog's rows in files: the same rows as in memory, and a bounded part of them there."""

from __future__ import annotations

import os
import tempfile
import tracemalloc
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from processing.control.rebuild_state import UNDERWAY
from processing.state.rows import CONTEXT, PARTITION_KEY, deleted, with_version
from replay.log.live_table import Rows, apply_record, live
from replay.log.row_files import RowFiles

KEYS = st.sampled_from([PARTITION_KEY, UNDERWAY, *(CONTEXT + b"%d" % n for n in range(5))])
ROWS = st.builds(
    lambda offset, body: with_version(bytes(16) + body, 1, offset),
    st.integers(-1, 9),
    st.binary(max_size=3),
)
DELETED = st.builds(deleted, st.just(1), st.integers(0, 9))
RECORDS = st.lists(st.tuples(KEYS, ROWS | DELETED | st.none()))
COUNT, ROW_BYTES, BOUND = 50_000, 1_000, 10_000_000


@given(RECORDS)
def test_rows_in_files_are_those_in_memory(records: list[tuple[bytes, bytes | None]]) -> None:
    expected: Rows = {}
    with RowFiles(Path(tempfile.gettempdir())) as files:
        for key, row in records:
            files.add(key, row)
            apply_record(expected, key, row)
        files.add(None, bytes(40))
        files.add(CONTEXT + b"text", b'{"mode": "act"}')  # not a row
        found = list(files.rows())
        assert dict(files.rows()) == dict(found) == live(expected)
        assert len(found) == len(live(expected))
        own = {key: row for key, row in expected.items() if not key.startswith(CONTEXT)}
        assert files.own == own


def test_memory_holds_a_bounded_part_of_the_rows(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        with RowFiles(tmp_path) as files:
            for number in range(COUNT):
                files.add(CONTEXT + b"%d" % number, with_version(os.urandom(ROW_BYTES), 1, number))
            size = sum(len(row) for _key, row in files.rows())
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size == COUNT * ROW_BYTES > 4 * BOUND
    assert most < BOUND
    assert list(tmp_path.iterdir()) == [], "the files have no names"
