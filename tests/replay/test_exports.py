"""Exports: what goes in comes out, to the byte, and what is wrong with a file is said."""

from __future__ import annotations

from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processing.records import RecordBatch
from replay.exports import (
    FORMAT,
    ExportHeader,
    ExportHistory,
    NotAnExport,
    Writer,
    read_export,
    read_header,
)
from replay.histories import NothingThere, Range, Reading

HEADER = ExportHeader(FORMAT, 7, 4, "a test")

value = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.sampled_from([b'{"a":1}', b'[{"value":"x"}]', b'{"a":"\xff"}', b'{"a":\n1}', b'{"a":\r1}',
                     b"{}", b"null", '{"ä":",\\"value\\":"}'.encode()]),
)  # fmt: skip
header = st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5)))
record = st.tuples(
    st.integers(0, 2**45), st.one_of(st.none(), st.binary(max_size=9)), value,
    st.lists(header, max_size=2),
)  # fmt: skip


def batch_of(partition: int, records: list[tuple[int, bytes | None, bytes | None, list[object]]]):  # type: ignore[no-untyped-def]
    count = len(records)
    return RecordBatch(
        "headstart.events", partition, 0, count, list(range(count)), [each[0] for each in records],
        [each[1] for each in records], [each[2] for each in records],
        {offset: each[3] for offset, each in enumerate(records) if each[3]},
    )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(record, min_size=1, max_size=12))
def test_records_come_back_to_the_byte(tmp_path_factory, records) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path_factory.mktemp("export") / "log.zst"
    with Writer(file, HEADER) as writer:
        writer.add(batch_of(1, records))
        writer.add(batch_of(3, records[:1]))
    ((back, _),) = read_export(file, 1)
    assert (back.timestamps, back.keys, back.values) == (
        [each[0] for each in records], [each[1] for each in records], [each[2] for each in records]
    )  # fmt: skip
    assert back.headers == {n: each[3] for n, each in enumerate(records) if each[3]}
    assert read_header(file).epoch == 7
    assert sorted(ExportHistory(file, Reading()).units()) == [1, 3]


def test_the_largest_partition_comes_first(tmp_path: Path) -> None:
    """So processes that share partitions end nearly together."""
    file = tmp_path / "log.zst"
    with Writer(file, HEADER) as writer:
        for partition, count in ((0, 1), (1, 300), (2, 90)):
            writer.add(batch_of(partition, [(n, b"k", b"[%d]" % n**9, []) for n in range(count)]))
    assert ExportHistory(file, Reading()).units() == [1, 2, 0]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = tmp_path / "log.zst"
    with Writer(file, HEADER) as writer:
        writer.add(batch_of(0, [(1, b"k", b'{"a":1}', []), (5, b"k", b'{"a":2}', [])]))
    return file


def test_a_range_of_time(written: Path) -> None:
    ((batch, _),) = read_export(written, 0, Range(since=2))
    assert batch.offsets == [1]


def test_a_range_of_offsets(written: Path) -> None:
    for span in (Range(begin={0: 1}), Range(begin={0: 1, 3: 9}, end={0: 2, 3: 0})):
        ((batch, _),) = read_export(written, 0, span)
        assert batch.offsets == [1]
    assert list(read_export(written, 0, Range(end={0: 0}))) == []


def test_it_is_a_zstd_file_like_any_other(written: Path) -> None:
    """Skippable frames are skipped by every decoder; ours goes frame by frame."""
    assert written.read_bytes()[:4] == b"\x50\x2a\x4d\x18"


@pytest.mark.parametrize("cut", [3, 30, 200, -40])
def test_a_cut_export_is_refused(written: Path, cut: int) -> None:
    whole = written.read_bytes()
    written.write_bytes(whole[: cut if cut > 0 else len(whole) + cut])
    with pytest.raises(NotAnExport, match=r"missing|damaged|not an export"):
        list(read_export(written, 0))


def test_a_damaged_piece_is_passed_over_and_named(tmp_path: Path) -> None:
    file = tmp_path / "log.zst"
    with Writer(file, HEADER) as writer:
        writer.add(batch_of(0, [(1, b"k", b'{"a":"%d"}' % n, []) for n in range(500)]))
        writer.add(batch_of(1, [(1, b"k", b'{"a":1}', [])]))
    raw = bytearray(file.read_bytes())
    magic = b"\x28\xb5\x2f\xfd"
    middle = raw.index(magic, raw.index(magic) + 1)  # the frame of partition 0
    raw[middle : middle + 4] = b"lost"
    file.write_bytes(raw)
    warnings: list[str] = []
    assert list(read_export(file, 0, warnings=warnings)) == []
    assert "500 records of partition 0 passed over" in warnings[0]
    assert len(list(read_export(file, 1, warnings=warnings))) == 1
    with pytest.raises(NotAnExport):
        list(read_export(file, 0))


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    file = tmp_path / "new.zst"
    with Writer(file, ExportHeader(FORMAT + 1, 7, 4)):
        pass
    with pytest.raises(NotAnExport, match=r"newer headstart .*upgrade"):
        read_header(file)


def test_an_export_without_records(tmp_path: Path) -> None:
    file = tmp_path / "empty.zst"
    with Writer(file, HEADER):
        pass
    with pytest.raises(NothingThere, match="no records"):
        ExportHistory(file, Reading()).units()


def test_another_zstd_file_is_no_export(tmp_path: Path) -> None:
    file = tmp_path / "other.zst"
    file.write_bytes(bytes(cramjam.zstd.compress(b'{"a": 1}\n', 1)))
    with pytest.raises(NotAnExport):
        read_header(file)


def test_nothing_is_left_of_an_export_that_failed(tmp_path: Path) -> None:
    def fail() -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError), Writer(tmp_path / "log.zst", HEADER):
        fail()
    assert list(tmp_path.iterdir()) == []
