"""The export of what was learned: the same bits, in an order that does not depend on partitions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headstart.keys import context_paths
from learners.hops import Hops
from processing.state.rows import ContextRow, context_key, encode_context, start_key
from replay.log.live_table import TablePartition
from replay.rebuild.learned_state_file import learned_lines
from topics.epoch import Epoch

POLICY = Hops()
SIZE = len(POLICY.initial())
states = st.lists(
    st.floats(allow_nan=False, allow_infinity=False), min_size=SIZE, max_size=SIZE
).map(tuple)
paths = st.sampled_from(context_paths("refund", {"domain": "a/b", "user_id": "é"}.get))
contexts = st.dictionaries(st.tuples(st.sampled_from(["acme", "other"]), paths), states)


def row(state: tuple[float, ...]) -> bytes:
    return encode_context(ContextRow(5, 7, 9, 3, 2, 1, POLICY.version, "other", state))


def exported(partitions: dict[int, TablePartition], tenant: str | None = None) -> list[bytes]:
    return list(
        learned_lines(
            partitions,
            Epoch(5, 2),
            POLICY,
            ["domain", "user_id"],
            lambda owner, _path: tenant in {None, owner},
        )
    )


@given(contexts, contexts)
def test_every_wanted_context_with_its_bits(
    one: dict[tuple[str, str], tuple[float, ...]], two: dict[tuple[str, str], tuple[float, ...]]
) -> None:
    two = {place: state for place, state in two.items() if place not in one}
    partitions = {
        number: TablePartition({context_key(*place): row(s) for place, s in each.items()})
        for number, each in enumerate((one, two))
    }
    partitions[0].rows[start_key("acme", "refund", "w", "t")] = b"not a context"
    header, *lines = [json.loads(line) for line in exported(partitions)]
    assert header["contexts"] == len(lines) == len(one | two)
    found = {(each["tenant"], each["path"]): tuple(each["state"]) for each in lines}
    assert {place: tuple(map(float, state)) for place, state in found.items()} == one | two
    assert list(found) == sorted(one | two)
    assert all(each["workflow_type"] == "refund" for each in lines)
    only = [json.loads(line) for line in exported(partitions, "acme")]
    assert only[0]["contexts"] == len([place for place in one | two if place[0] == "acme"])


def test_a_state_that_cannot_be_written_is_refused() -> None:
    rows = {context_key("acme", "workflow_type=refund"): row((float("inf"),) * SIZE)}
    with pytest.raises(ValueError, match="headstart verify"):
        exported({0: TablePartition(rows)})
