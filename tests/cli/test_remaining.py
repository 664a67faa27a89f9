"""Where an override was unset, the one that applies now is named."""

from __future__ import annotations

from typing import Any

import pytest

from cli.config.remaining import remaining_overrides, sentences

COARSE, FINE = "workflow_type=refund", "workflow_type=refund/domain=retail"
WIDER = {"path": "", "speculate": 0.97, "reason": "slow API"}
OF_PAY = {"path": FINE, "tool": "pay", "suggest": 0.6}
BELOW = {"path": f"{FINE}/user_id=u1", "speculate": 0.5}
OF_A_USER = {"path": f"{COARSE}/user_id=u1", "speculate": 1.0}
ENDED = {"path": FINE, "speculate": 0.1, "until": 10}
LEARNED = "unset: the learned threshold is served again"
APPLIES = "unset: this override applies there now: "
ALSO = "also in force, for one tool or a context below: "


@pytest.mark.parametrize(
    ("stored", "path", "tool", "expected"),
    [
        ([], FINE, None, [LEARNED]),
        ([ENDED], FINE, None, [LEARNED]),
        ([{**OF_PAY, "path": f"{COARSE}/domain=retailer"}], FINE, None, [LEARNED]),
        ([WIDER], FINE, "pay",
         [APPLIES + "the whole workflow type, every tool: speculate 0.97 (slow API)"]),
        ([WIDER, OF_PAY], FINE, None,
         [APPLIES + "the whole workflow type, every tool: speculate 0.97 (slow API)",
          ALSO + f"{FINE}, pay: suggest 0.6"]),
        ([BELOW, OF_PAY], FINE, "search",
         [LEARNED, ALSO + f"{FINE}/user_id=u1, every tool: speculate 0.5"]),
        ([OF_A_USER], FINE, "pay",
         [LEARNED, ALSO + f"{COARSE}/user_id=u1, every tool: speculate 1"]),
        ([OF_A_USER], f"{FINE}/user_id=u1", None,
         [APPLIES + f"{COARSE}/user_id=u1, every tool: speculate 1"]),
        ([OF_A_USER], f"{COARSE}/user_id=u2", None, [LEARNED]),
        ([OF_PAY], "", None, [LEARNED, ALSO + f"{FINE}, pay: suggest 0.6"]),
        ([OF_PAY], "", "search", [LEARNED]),
    ],
)  # fmt: skip
def test_what_applies_now_is_named(
    stored: list[Any], path: str, tool: str | None, expected: list[str]
) -> None:
    found = remaining_overrides(stored, "refund", path, tool, 10)
    assert list(sentences(found)) == expected
    assert (found.as_json["applies"] is None) == (expected[0] == LEARNED)
    assert len(found.as_json["others"]) == len(expected) - 1


def test_only_some_of_many_are_listed() -> None:
    stored = [{"path": f"{FINE}/user_id=u{n}", "speculate": 0.5} for n in range(9)]
    *_, last = sentences(remaining_overrides(stored, "refund", "", None, 10))
    assert last == "and 4 more; `headstart config list` shows them"


def test_what_cannot_be_read_still_applies() -> None:
    found = remaining_overrides(None, "refund", FINE, None, 10)
    assert found.applies is not None
    assert found.applies.speculate is not None
    assert found.applies.speculate > 1.0
