"""What the runs in containers make of logs and of what they measured, without an engine."""

from __future__ import annotations

from tests.chaos.checker import Checked
from tests.compose.goals import Goals
from tests.compose.stages import complaints, stages, started_after

SINCE = 1_795_939_200.0  # 2026-11-29T08:00:00
LOG = """\
2026-11-29T07:59:58.000+00:00 INFO    worker.started worker=thresholds instance=0 epoch=1
2026-11-29T07:59:59.000+00:00 INFO    kernels.loaded
2026-11-29T07:59:59.500+00:00 WARNING worker.retrying reason="before the kill"
2026-11-29T08:00:01.250+00:00 WARNING worker.retrying worker=thresholds reason="no broker"
Traceback (most recent call last):
2026-11-29T08:00:03.200+00:00 INFO    worker.started worker=thresholds instance=0 epoch=1
2026-11-29T08:00:03.800+00:00 INFO    changelog.restored partitions=2 records=17
2026-11-29T08:00:03.900+00:00 INFO    partition.opened partition=0 applied_offset=4 published=1
2026-11-29T08:00:04.500+00:00 INFO    partition.opened partition=1 applied_offset=7 published=0
"""


def test_stages_are_those_after_the_kill() -> None:
    assert stages(LOG, SINCE) == {
        "worker.started": 3.2, "changelog.restored": 3.8, "partition.opened": 4.5
    }  # fmt: skip
    assert stages("", SINCE) == {}


def test_warnings_after_the_kill_are_shown() -> None:
    assert complaints(LOG, SINCE) == ['1.2 s: worker.retrying worker=thresholds reason="no broker"']


def test_the_engine_writes_nanoseconds() -> None:
    assert started_after("2026-11-29T08:00:00.412345678Z", SINCE) == 0.4
    assert started_after("2026-11-29T08:00:02Z", SINCE) == 2.0


def test_what_takes_too_long_is_missed() -> None:
    goals = Goals()
    goals.at_most("a restart", 60.0, 60.0)
    assert goals.missed == []
    goals.at_most("the whole run", 600.4, 600.0)
    assert goals.missed == ["the whole run took 600.4 s, and may take 600 s"]


def test_what_the_checker_finds_is_missed() -> None:
    goals = Goals()
    goals.exact(Checked(emitted=9, logged=9, sent_twice=2, lost=0, double=0, differing=0))
    assert goals.missed == []
    goals.exact(Checked(emitted=9, logged=9, sent_twice=0, lost=1, double=2, differing=3))
    assert goals.missed == [
        "1 events lost", "2 events stored twice", "3 contexts that differ from the log"
    ]  # fmt: skip
