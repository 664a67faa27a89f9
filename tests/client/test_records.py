"""Laws of a segment's bytes: whole records come back whatever the cut, and nothing else does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headstart.spool.segment_format import (
    HEADER_BYTES,
    SegmentTail,
    SpoolRecord,
    find_record,
    pack_header,
    pack_record,
    pack_seal,
    scan,
    unpack_header,
)

keys = st.binary(min_size=1, max_size=12)
bodies = st.binary(min_size=1, max_size=40)


@st.composite
def written(draw: st.DrawFn) -> list[SpoolRecord]:
    """Records as an emitter writes them: positions grow, mostly by one."""
    position, records = draw(st.integers(0, 2**40)), []
    for key, body in draw(st.lists(st.tuples(keys, bodies), max_size=8)):
        records.append(SpoolRecord(position, key, body))
        position += draw(st.sampled_from([1, 1, 1, 5]))
    return records


def packed(records: list[SpoolRecord]) -> bytes:
    return b"".join(pack_record(*record) for record in records)


@given(written(), st.data())
def test_whatever_the_cut_the_whole_records_before_it_come_back(
    records: list[SpoolRecord], data: st.DataObject
) -> None:
    whole = packed(records)
    cut = data.draw(st.integers(0, len(whole)))
    found = scan(whole[:cut], 0)
    assert found.records == records[: len(found.records)]
    assert len(packed(found.records)) == found.end <= cut
    assert found.tail is (SegmentTail.END if found.end == cut else SegmentTail.SHORT)
    assert scan(whole, 0).records == records


@given(written(), st.data())
def test_a_changed_byte_never_makes_another_record(
    records: list[SpoolRecord], data: st.DataObject
) -> None:
    whole = bytearray(packed(records))
    if not whole:
        return
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    found = scan(bytes(whole), 0)
    assert found.records == records[: len(found.records)]
    assert len(found.records) < len(records)


@given(written(), bodies, written())
def test_records_after_damage_are_found(
    before: list[SpoolRecord], damage: bytes, after: list[SpoolRecord]
) -> None:
    first = before[-1].position + 1 if before else 0
    after = [record._replace(position=record.position + first) for record in after]
    whole = packed(before) + damage + packed(after)
    found = scan(whole, 0)
    assert found.records == before
    rest = whole[found.end :]
    at = find_record(rest, first)
    assert (at is None) == (not after)
    if at is not None:
        assert scan(rest[at:], first).records == after


@given(written(), st.integers(0, 2**40))
def test_a_seal_ends_a_segment(records: list[SpoolRecord], position: int) -> None:
    position += records[-1].position + 1 if records else 0
    found = scan(packed(records) + pack_seal(position) + b"anything", 0)
    assert (found.records, found.tail) == (records, SegmentTail.SEALED)


@given(written())
def test_positions_never_go_back(records: list[SpoolRecord]) -> None:
    if records:
        found = scan(packed([*records, records[-1]]), records[0].position)
        assert (found.records, found.tail) == (records, SegmentTail.BAD)


@given(st.integers(0, 2**60), st.integers(0, 2**50), st.binary(max_size=30))
def test_a_header_is_ours_or_none(first: int, created_ms: int, other: bytes) -> None:
    header = pack_header(first, created_ms)
    assert len(header) == HEADER_BYTES
    assert unpack_header(header) == (first, created_ms)
    assert unpack_header(other) is None
