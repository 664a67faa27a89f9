"""A live run with kills, a learned default and changed learners is replayed to the same bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.agreement import Agreement, run, wrong

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]


def test_live_and_replay_agree_to_the_bit(broker: str, messages: list[str], tmp_path: Path) -> None:
    if broker not in ("embedded", "apache"):
        pytest.skip("a broker that runs already is not this test's alone")
    found = run(tmp_path, broker, Agreement(events=4_000, kills=3), messages.append)
    assert not wrong(found), (found, messages)
    assert (found["killed"], found["wiped"]) == (3, 1)
    assert {"hops", "ema:alpha=0.1", "td", "sliding"} <= {*found["learners"]}
    assert found["contexts"] > 250
