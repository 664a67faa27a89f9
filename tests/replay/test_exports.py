"""Exports: what goes in comes out, to the byte, and errors of a file are reported."""

from __future__ import annotations

from pathlib import Path

import cramjam
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from processing.records.batch import RecordBatch
from replay.predictions.notes import Notes
from replay.sources.base import NothingThere, ReadOptions, TimeRange
from replay.sources.export_chunks import encode_piece
from replay.sources.export_file import (
    FORMAT,
    ExportHeader,
    ExportSource,
    NotAnExport,
    Writer,
    read_export,
    read_header,
)

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
    assert sorted(ExportSource(file, ReadOptions()).units()) == [1, 3]


def test_the_largest_partition_comes_first(tmp_path: Path) -> None:
    """So processes that share partitions end nearly together."""
    file = tmp_path / "log.zst"
    with Writer(file, HEADER) as writer:
        for partition, count in ((0, 1), (1, 300), (2, 90)):
            writer.add(batch_of(partition, [(n, b"k", b"[%d]" % n**9, []) for n in range(count)]))
    assert ExportSource(file, ReadOptions()).units() == [1, 2, 0]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    file = tmp_path / "log.zst"
    with Writer(file, HEADER) as writer:
        writer.add(batch_of(0, [(1, b"k", b'{"a":1}', []), (5, b"k", b'{"a":2}', [])]))
    return file


def test_a_range_of_time(written: Path) -> None:
    ((batch, _),) = read_export(written, 0, TimeRange(since=2))
    assert batch.offsets == [1]


def test_a_range_of_offsets(written: Path) -> None:
    for span in (TimeRange(begin={0: 1}), TimeRange(begin={0: 1, 3: 9}, end={0: 2, 3: 0})):
        ((batch, _),) = read_export(written, 0, span)
        assert batch.offsets == [1]
    assert list(read_export(written, 0, TimeRange(end={0: 0}))) == []


def test_it_is_a_zstd_file_like_any_other(written: Path) -> None:
    """Skippable frames are skipped by every decoder; ours goes frame by frame."""
    assert written.read_bytes()[:4] == b"\x50\x2a\x4d\x18"


@pytest.mark.parametrize("cut", [3, 30, 200, -40])
def test_a_cut_export_is_refused(written: Path, cut: int) -> None:
    whole = written.read_bytes()
    written.write_bytes(whole[: cut if cut > 0 else len(whole) + cut])
    with pytest.raises(NotAnExport, match=r"missing|damaged|not an export"):
        list(read_export(written, 0))


def test_a_damaged_piece_is_an_error_that_names_place_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "log.zst"
    with Writer(file, HEADER) as writer:
        writer.add(batch_of(0, [(1, b"k", b'{"a":"%d"}' % n, []) for n in range(500)]))
        writer.add(batch_of(1, [(1, b"k", b'{"a":1}', [])]))
    raw = bytearray(file.read_bytes())
    magic = b"\x28\xb5\x2f\xfd"
    middle = raw.index(magic, raw.index(magic) + 1)  # the frame of partition 0
    raw[middle : middle + 4] = b"lost"
    file.write_bytes(raw)
    source = ExportSource(file, ReadOptions())
    with pytest.raises(
        NotAnExport,
        match=rf"byte {middle}: a piece with 500 records of partition 0 .*export it again",
    ):
        list(source.batches(0, Notes()))
    assert len(list(source.batches(1, Notes()))) == 1  # its records are whole


def test_a_head_of_another_partition_is_damage(tmp_path: Path) -> None:
    """A reader of its partition skips its frame, with its checksum."""
    file = tmp_path / "log.zst"
    with Writer(file, HEADER) as writer:
        for partition in range(2):
            writer.add(batch_of(partition, [(1, b"k", b"{}", [])]))
    raw = file.read_bytes()
    head = b'"partition":1,"records"'
    assert raw.count(head) == 1
    file.write_bytes(raw.replace(head, b'"partition":3,"records"'))
    for partition in range(4):
        with pytest.raises(NotAnExport, match="damaged"):
            list(read_export(file, partition))


@given(st.integers(0, 10**9), st.integers(0, 7))
def test_no_flipped_bit_changes_or_loses_a_record(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    file = tmp_path_factory.mktemp("flip") / "log.zst"
    made = {p: [(1, b"k", b'{"a":"%d%d"}' % (p, n), []) for n in range(9)] for p in range(3)}
    with Writer(file, HEADER) as writer:
        for partition, records in made.items():
            writer.add(batch_of(partition, records))
    raw = bytearray(file.read_bytes())
    raw[place % len(raw)] ^= 1 << bit
    file.write_bytes(raw)
    refused, read = False, list[bytes | None]()
    written = [record[2] for records in made.values() for record in records]
    try:
        for partition in made:
            for batch, _ in read_export(file, partition):
                read += batch.values
    except NotAnExport:
        refused = True
    assert read == written or refused
    assert set(read) <= set(written)


def test_a_damaged_head_is_an_error_before_anything_is_read(tmp_path: Path) -> None:
    file = tmp_path / "log.zst"
    with Writer(file, HEADER) as writer:
        for partition in (0, 1):
            writer.add(batch_of(partition, [(1, b"k", b'{"a":1}', [])]))
    raw = file.read_bytes()
    second = raw.index(raw[:4], 4)
    file.write_bytes(raw[:second] + b"lost" + raw[second + 4 :])
    with pytest.raises(NotAnExport, match=f"byte {second}: damaged.*export it again"):
        ExportSource(file, ReadOptions()).units()
    with pytest.raises(NotAnExport, match=f"byte {second}"):
        list(read_export(file, 1))


def test_lines_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "log.zst"
    lines = [b'{"partition":0,"offset":%d,"timestamp":1,"base64":"%b"}\n' % each
             for each in ((0, b"eA=="), (1, b"e"), (2, b"eQ=="))]  # fmt: skip
    lines.insert(2, b'{"partition":\n')
    whole = [encode_piece([b], -1, 0) for b in (msgspec.json.encode(HEADER), b'{"records":4}')]
    file.write_bytes(whole[0] + encode_piece(lines, 0, 4) + whole[1])
    with pytest.raises(NotAnExport, match=r"partition 0 is damaged .2 lines cannot be read"):
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
        ExportSource(file, ReadOptions()).units()


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
