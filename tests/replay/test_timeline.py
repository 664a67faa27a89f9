"""A history is parted where a share of its predictions is over, not where a stretch began."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from learners.outcome import Outcome
from replay.engine.timeline import Timeline, nearest
from replay.execution.tuning import split_at, tune
from replay.sources.base import ReadOptions
from replay.sources.files import OutcomeFile

FIRST = 1_760_000_000_000


def history(folder: Path, times: list[int | None]) -> OutcomeFile:
    file = folder / "outcomes.jsonl"
    lines = [
        {"confidence": 0.9, "correct": number % 3 > 0, "gain": 100, "cost": 100, "at": at,
         "workflow_id": str(number)}
        for number, at in enumerate(times)
    ]  # fmt: skip
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return OutcomeFile(file, ReadOptions())


@pytest.mark.parametrize(
    ("count", "share", "first"),
    [
        (10, 0.1, 1),
        (10, 0.6, 6),
        (10, 0.9, 9),
        (100, 0.6, 60),
        (100, 0.29, 29),
        (5_000, 0.6, 3_000),
    ],
)
@pytest.mark.parametrize("step", [1_000, 0, None])
def test_the_first_part_has_its_share(
    tmp_path: Path, count: int, share: float, first: int, step: int | None
) -> None:
    times = [None if step is None else FIRST + step * number for number in range(count)]
    found = tune(
        history(tmp_path, times), ["always"], "never", lambda _: None, share=share, processes=1
    )
    assert found.predictions == {"searched": first, "confirmed": count - first}


def test_the_split_is_the_time_of_the_first_prediction_of_the_later_part(tmp_path: Path) -> None:
    times = [FIRST + 1_000 * number for number in range(10)]
    split = split_at(history(tmp_path, times), 0.6, lambda _: None, 1)
    assert (split.at, split.number) == (times[6], None)


def test_a_time_that_is_ahead_of_the_others_does_not_move_the_split(tmp_path: Path) -> None:
    times = [FIRST + 1_000 * number for number in range(100)]
    times[2] += 10**9
    found = tune(history(tmp_path, times), ["always"], "never", lambda _: None, processes=1)
    assert found.predictions == {"searched": 60, "confirmed": 40}


def test_stretches_are_bounded_and_lose_no_prediction() -> None:
    timeline = Timeline(8)
    apart = Outcome(0.9, True, timestamp=55, not_startable="mode")
    timeline.add([Outcome(0.9, True, timestamp=each) for each in range(1, 101)] + [apart])
    assert len(timeline.at) == len(timeline.counts) <= 9
    assert sum(timeline.counts) == 100
    _, before = nearest([(timeline.at, timeline.counts)], 60)
    assert abs(before - 60) <= 16


def test_units_are_parted_by_one_time() -> None:
    assert nearest([([1, 3, 5], [1, 1, 1]), ([2, 4, 6], [1, 1, 1])], 4) == (5, 4)
    assert nearest([([1], [4]), ([1], [2])], 4) == (None, 0)
