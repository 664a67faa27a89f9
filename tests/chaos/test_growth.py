"""What counts as growth of a worker, and that the watch sees a real process."""

from __future__ import annotations

import os

from tests.chaos.growth import GrowthWatch, Sample, judged
from tests.patience import until

MINUTE = 60.0


def life(
    pid: int, begin: float, minutes: int, mb_a_minute: float, files_a_minute: float = 0.0
) -> list[Sample]:
    return [
        Sample(begin + n * MINUTE, pid, 100.0 + mb_a_minute * n, 40 + round(files_a_minute * n))
        for n in range(minutes)
    ]


def test_a_level_worker_is_flat_and_a_growing_one_grows() -> None:
    level = judged(life(1, 0.0, 60, 0.0))
    assert (level["verdict"], level["mb_per_h"], level["most_files"]) == ("flat", 0.0, 40)
    grown = judged(life(1, 0.0, 60, 1.0))
    assert (grown["verdict"], grown["mb_per_h"], grown["most_mb"]) == ("grows", 60.0, 159.0)
    leaking = judged(life(1, 0.0, 60, 0.0, files_a_minute=1.0))
    assert (leaking["verdict"], leaking["files_per_h"]) == ("grows", 60.0)


def test_a_start_is_not_growth_and_a_restart_hides_none() -> None:
    loading = [Sample(n * MINUTE, 1, 50.0 + 20.0 * n, 40) for n in range(3)]
    level = [Sample(n * MINUTE, 1, 110.0, 40) for n in range(3, 60)]
    assert judged([*loading, *level])["verdict"] == "flat"
    restarted = judged([*life(1, 0.0, 40, 1.0), *life(2, 40 * MINUTE, 10, 0.0)])
    assert (restarted["verdict"], restarted["processes"]) == ("grows", 2)


def test_too_few_samples_decide_nothing() -> None:
    found = judged(life(1, 0.0, 4, 0.0))
    assert (found["verdict"], found["mb_per_h_error"]) == ("undecided", None)


def test_the_watch_sees_a_process_and_overlooks_one_that_has_ended() -> None:
    with GrowthWatch(lambda: {"here": os.getpid(), "gone": 2**22 + 1}, every_s=0.01) as watch:
        until(lambda: len(watch.samples.get("here", ())) >= 3)
    (first, *_) = watch.samples["here"]
    assert first.mb > 1
    assert first.files > 2
    assert "gone" not in watch.samples
