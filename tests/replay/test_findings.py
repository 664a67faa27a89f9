"""What differs between two tables is named for people, whatever the row is of."""

from __future__ import annotations

import msgspec

from processing.state.rows import (
    PARTITION_KEY,
    ContextRow,
    OpenPredictionRow,
    TaskStateRow,
    context_key,
    deleted,
    encode_context,
    encode_partition,
    encode_start,
    old_start_key,
    spool_key,
    start_key,
)
from replay.verify.row_diff import MOST_NAMED, Findings, compare_rows

CONTEXT = context_key("acme", "workflow_type=refund")


def context(outcomes: int) -> bytes:
    return encode_context(ContextRow(1, 5, 0, outcomes, 0, 0, 1, "td", (0.5, 0.0)))


def test_every_kind_of_row_is_named() -> None:
    """A finding has the kind of its row, besides its own."""
    start = encode_start(OpenPredictionRow(1, 0.9, None, "speculative", False, ("retail",)), 1, 5)
    spool = spool_key("acme", "refund", "s1")
    findings = Findings()
    compare_rows(
        findings, 3,
        {CONTEXT: context(7), spool: b"x", PARTITION_KEY: encode_partition(TaskStateRow(), 1, 4)},
        {CONTEXT: context(9), start_key("acme", "refund", "w1", "t1"): start,
         PARTITION_KEY: encode_partition(TaskStateRow(), 1, 5)},
    )  # fmt: skip
    assert not findings.ok
    assert findings.counts == {"row_missing": 1, "row_extra": 1, "row_differing": 2}
    named = {(each["finding"], each["kind"]): each for each in findings.named}
    assert {each["partition"] for each in findings.named} == {3}
    assert named["row_missing", "start"]["key"] == "acme / refund / w1 / t1"
    assert named["row_extra", "spool"]["key"] == "acme / refund / s1"
    differs = named["row_differing", "context"]
    assert (differs["tenant"], differs["path"]) == ("acme", "workflow_type=refund")
    assert (differs["outcomes"], differs["expected"]) == (7, 9)
    assert ("row_differing", "partition") in named


def test_a_field_may_be_called_kind() -> None:
    findings = Findings()
    findings.add("row_extra", kind="context")
    assert findings.named == [{"finding": "row_extra", "kind": "context"}]


def test_all_are_counted_and_the_first_are_named() -> None:
    findings = Findings()
    compare_rows(findings, 0, {context_key("t", str(n)): b"x" for n in range(150)}, {})
    assert findings.counts == {"row_extra": 150}
    assert len(findings.named) == MOST_NAMED


def test_nothing_is_found_where_nothing_differs() -> None:
    findings = Findings()
    compare_rows(findings, 0, {CONTEXT: context(7)}, {CONTEXT: context(7)})
    assert findings.ok


def test_a_start_that_an_earlier_version_wrote_is_no_difference() -> None:
    """Its key lacks the workflow type, its row the user."""
    open_start = OpenPredictionRow(1, 0.9, None, "speculative", False, ("retail",), "u7")
    before = msgspec.structs.astuple(open_start)[:-1]
    written = deleted(1, 5) + msgspec.msgpack.encode(before)
    live = {old_start_key("acme", "w1", "t1"): written}
    findings = Findings()
    compare_rows(
        findings, 0, live, {start_key("acme", "refund", "w1", "t1"): encode_start(open_start, 1, 5)}
    )
    assert findings.ok
    compare_rows(
        findings, 0, live, {start_key("acme", "refund", "w1", "t1"): encode_start(open_start, 1, 6)}
    )
    assert findings.counts == {"row_missing": 1, "row_extra": 1}
