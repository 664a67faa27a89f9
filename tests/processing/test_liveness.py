"""When a worker is taken for stuck: laws over any course of reports, and the cases that matter."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from processing.worker_report import (
    LONGEST_STEP_S,
    START_FACTOR,
    Report,
    Watchdog,
    decode_report,
    encode_report,
)

LIMIT_S = 30.0

small = st.integers(0, 3)
offsets = st.dictionaries(st.integers(0, 2), st.integers(0, 50), max_size=3)
reports = st.builds(
    Report,
    worker=st.just("thresholds"),
    pid=st.just(7),
    at=st.integers(0, 5),
    ready=st.booleans(),
    done=offsets,
    lag=offsets,
    restored=offsets,
    opened=small,
    parts=small,
    away=st.just(()),
    waits_for=st.sampled_from([(), ("broker",)]),
)
looks = st.lists(st.tuples(st.floats(0, 20), st.none() | reports), min_size=1, max_size=60)


def report(at: int, **more: Any) -> Report:
    return Report(worker="thresholds", pid=7, at=at, **more)


def watched(
    course: Iterable[tuple[float, Report | None]], limit_s: float = LIMIT_S
) -> list[str | None]:
    """The verdicts over (seconds since the last look, report)."""
    dog, now, reasons = Watchdog(limit_s), 1_000.0, []
    for step, seen in course:
        now += step
        reasons.append(dog.observe(now, seen))
    return reasons


@given(looks)
def test_no_worker_is_stuck_before_the_limit(
    course: list[tuple[float, Report | None]],
) -> None:
    looked = 0.0
    for (step, _report), why in zip(course, watched(course), strict=True):
        looked += min(step, LONGEST_STEP_S)
        assert why is None or looked > LIMIT_S


@given(looks)
def test_zero_switches_it_off(course: list[tuple[float, Report | None]]) -> None:
    assert set(watched(course, 0.0)) == {None}


@given(looks, st.floats(0.1, 4.0), st.none() | reports)
def test_a_worker_without_progress_is_stuck_in_the_end(
    course: list[tuple[float, Report | None]], step: float, last: Report | None
) -> None:
    silence = [(step, last)] * (int(START_FACTOR * LIMIT_S / step) + 3)
    assert watched([*course, *silence])[-1] is not None


@given(st.lists(reports, min_size=1, max_size=100))
def test_a_worker_that_reports_and_waits_is_not_stuck(course: list[Report]) -> None:
    waiting = [
        (1.0, report(at, ready=each.ready, done=each.done, lag=each.lag, waits_for=("broker",)))
        for at, each in enumerate(course)
    ]
    assert set(watched(waiting)) == {None}


@given(st.lists(st.integers(1, 25), min_size=1, max_size=8), st.sampled_from(["done", "restored"]))
def test_a_worker_with_occasional_progress_is_not_stuck(pauses: list[int], what: str) -> None:
    course, at = [], 0
    for offset, pause in enumerate(pauses):
        for _ in range(pause):
            at += 1
            moved: Any = {what: {0: offset}, "lag": {0: 9}, "ready": what == "done"}
            course.append((1.0, report(at, **moved)))
    assert set(watched(course)) == {None}


def test_a_slow_start_has_more_time() -> None:
    reasons = watched([(1.0, None)] * 130)
    assert set(reasons[:121]) == {None}
    assert reasons[-1] == "it has not reported for 129 s"


def test_lag_without_progress() -> None:
    course = [(1.0, report(at, ready=True, done={0: 5}, lag={0: 3, 1: 1})) for at in range(40)]
    reasons = watched(course)
    assert reasons[30] is None
    assert reasons[31] == "it lags by 4 records and has made no progress for 31 s"


def test_of_a_silent_worker_its_last_report_says_nothing() -> None:
    lagging: list[tuple[float, Report | None]] = [
        (1.0, report(at, ready=True, done={0: 5}, lag={0: 3})) for at in range(20)
    ]
    reasons = watched([*lagging, *[(1.0, lagging[-1][1])] * 31])
    assert set(reasons[:-1]) == {None}
    assert reasons[-1] == "it has not reported for 31 s"


def test_silence_after_a_wait_is_no_time_in_which_it_lagged() -> None:
    waiting = (1.0, report(0, ready=True, lag={0: 3}, waits_for=("postgres",)))
    lagging = [(1.0, report(at, ready=True, done={}, lag={0: 3})) for at in range(1, 29)]
    assert set(watched([*[waiting] * 29, *lagging])) == {None}


def test_parts_of_a_long_step_are_progress() -> None:
    course = [
        (1.0, report(at, ready=True, done={0: 5}, lag={0: 1_891}, parts=at // 25))
        for at in range(200)
    ]
    assert set(watched(course)) == {None}
    still = [(1.0, report(200 + at, ready=True, lag={0: 1_891}, parts=7)) for at in range(60)]
    assert watched([*course, *still])[-1] is not None


def test_a_long_statement_is_waited_for_and_a_short_one_is_not() -> None:
    def course(statement_s: float) -> list[tuple[float, Report | None]]:
        return [
            (1.0, report(at, ready=True, lag={0: 3}, statement_s=statement_s)) for at in range(300)
        ]

    assert set(watched(course(1.0))) == {None}
    assert watched(course(0.9))[-1] is not None


def test_an_idle_worker_rests_for_as_long_as_it_likes() -> None:
    course = [(1.0, report(at, ready=True, done={0: 5}, lag={0: 0})) for at in range(500)]
    assert set(watched(course)) == {None}


def test_a_start_that_comes_no_nearer() -> None:
    reasons = watched((1.0, report(at, restored={0: 7})) for at in range(130))
    assert set(reasons[:121]) == {None}
    assert reasons[-1] == "it has not come nearer to its start for 129 s"


def test_a_later_start_has_the_usual_time() -> None:
    course = [(1.0, report(at, ready=at == 0, restored={0: 7})) for at in range(40)]
    reasons = watched(course)
    assert reasons[30] is None
    assert reasons[-1] == "it has not come nearer to its start for 38 s"


def test_time_without_a_processor_does_not_count() -> None:
    dog, reasons = Watchdog(LIMIT_S), []
    for second in range(400):  # it gets a tenth of a processor
        seen = report(second, ready=True, done={0: 5}, lag={0: 3})
        reasons.append(dog.observe(1_000.0 + second, seen, second * 0.9))
    assert set(reasons[:300]) == {None}
    assert reasons[-1] == "it lags by 3 records and has made no progress for 40 s"


def test_a_large_table_takes_its_time() -> None:
    restoring = [(1.0, report(at, restored={0: at // 20})) for at in range(500)]
    opening = [(1.0, report(500 + at, restored={0: 24}, opened=1 + at // 20)) for at in range(100)]
    assert set(watched(restoring + opening)) == {None}


def test_going_round_in_circles_is_no_progress() -> None:
    # A group that rebalances for ever: partitions go, come back, and nothing is done.
    course = [
        (1.0, report(at, ready=at % 2 == 0, done={0: 5} if at % 2 == 0 else {}, lag={0: 3}))
        for at in range(40)
    ]
    assert watched(course)[-1] is not None


def test_a_service_that_is_back_gives_it_the_whole_time_again() -> None:
    away = [(1.0, report(at, ready=True, lag={0: 3}, waits_for=("postgres",))) for at in range(300)]
    back = [(1.0, report(300 + at, ready=True, lag={0: 3})) for at in range(35)]
    reasons = watched(away + back)
    assert set(reasons[:330]) == {None}
    assert reasons[-1] is not None


def test_time_without_observation_does_not_count() -> None:
    # Supervisor and worker were both stopped, then both went on.
    same = report(1, ready=True, lag={0: 3})
    assert (
        watched([(1.0, same), (3_600.0, same), (1.0, report(2, ready=True, done={0: 9}))])
        == [None] * 3
    )


def test_a_report_survives_the_file() -> None:
    given_report = report(
        1_800_000_000_000, ready=True, done={3: 9}, lag={3: 1}, away=("redis",), opened=1
    )
    assert decode_report(encode_report(given_report)) == given_report
    assert decode_report(b"") is None
    assert decode_report(b'{"worker": 1}') is None
