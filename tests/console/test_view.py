"""Snapshots of a system, and views of them: laws of the parts without I/O."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.health.http import serving
from cli.support.terminal import draws, only_ascii
from console.inspection.health import STILL_S, assess
from console.inspection.lag import GroupLag, LogState, SinkProgress
from console.inspection.learned import LearnedContext, LearnedSummary, summed
from console.inspection.services import ServiceAnswer
from console.inspection.snapshot import SystemSnapshot
from console.inspection.sparkline import ASCII, BLOCKS, plot, sparkline
from console.inspection.text_view import columns_of, plain_line, screen
from console.inspection.trends import Trends
from console.inspection.workers import Worker, ask_workers, find_workers
from processing.worker_report import ALL_WORKERS, Report, encode_report
from topics.catalogue import (
    DEAD_LETTERS,
    EPISODES_GROUP,
    EPOCHS,
    EVENTS,
    HANDLED,
    HISTORY_GROUP,
    SPANS_GROUP,
    THRESHOLDS,
)
from topics.kafka.groups import GroupState
from topics.kafka.topic_states import TopicState
from topics.kafka.transactions import LONG_S, OpenTransaction

NAMES = ("episodes", "thresholds", "history", "predictions")
SERVICES = tuple(ServiceAnswer(name, "a:1") for name in ("kafka", "postgres", "redis"))
numbers = st.lists(st.floats(0, 1), max_size=200)


def state(name: str, end: int) -> TopicState:
    return TopicState(name, 1, {0: 0}, {0: end})


def log(end: int, learned: int) -> LogState:
    ends = {EVENTS.name: end, THRESHOLDS.name: 0, DEAD_LETTERS.name: 2, HANDLED.name: 1,
            EPOCHS.name: 1}  # fmt: skip
    return LogState(1, {name: state(name, count) for name, count in ends.items()}, {0: learned})


def held_up(age_s: float, at: float) -> LogState:
    """A log of which a transaction holds 7 records back for so long."""
    since = int((at - age_s) * 1000)
    return replace(log(10, 10), open=(OpenTransaction(EVENTS.name, 0, 10, 7, since),))


def worker(name: str, **more: Any) -> Worker:
    report = Report(worker=name, pid=7, at=0, ready=True, **more.pop("report", {}))
    return replace(Worker(name, "0", 7, True, report, 100.0, 0.5), **more)


def look(at: float = 0.0, *, end: int = 10, learned: int = 10, **more: Any) -> SystemSnapshot:
    stored = SinkProgress({EPISODES_GROUP: {0: end}, HISTORY_GROUP: {0: 0}}, events=100)
    workers = tuple(worker(name) for name in NAMES)
    contexts = (LearnedContext("t", "workflow_type=rückgabe/domain=日本語\x1b[2J", 0.8, 12),)
    known = LearnedSummary(3, 12, 8, 2, 5000.0, 1000.0, contexts)
    return replace(SystemSnapshot(at, SERVICES, workers, log(end, learned), stored, known), **more)


def course(*looks: SystemSnapshot) -> Trends:
    made = Trends()
    for each in looks:
        made.add(each)
    return made


@given(numbers, st.integers(0, 80), st.booleans())
def test_a_sparkline_is_as_long_as_its_values(
    values: list[float], width: int, ascii_only: bool
) -> None:
    line = sparkline(values, width, ascii_only=ascii_only)
    assert len(line) == min(len(values), width)
    assert set(line) <= set(ASCII if ascii_only else BLOCKS)


def test_a_sparkline_rises_with_its_values() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == BLOCKS
    assert sparkline([3, 3], 8, ascii_only=True) == "++"
    assert sparkline([0.5], 8, low=0, high=1) == BLOCKS[4]


@given(numbers, st.integers(1, 100), st.integers(0, 30), st.booleans())
def test_a_plot_fits(values: list[float], width: int, height: int, ascii_only: bool) -> None:
    lines = plot(values, width, height, ascii_only=ascii_only)
    assert len(lines) == (height if values else 0)
    assert all(len(line) <= width for line in lines)
    if ascii_only:
        assert "".join(lines).isascii()


@given(st.integers(1, 200), st.integers(1, 60), st.booleans(), st.booleans())
def test_a_screen_fits_and_begins_with_the_verdict(
    width: int, height: int, ascii_only: bool, well: bool
) -> None:
    away = (*SERVICES[:2], ServiceAnswer("redis", "a", error="no"))
    seen = look() if well else look(workers=(), services=away)
    lines = screen(course(seen), width, height, ascii_only=ascii_only)
    assert len(lines) <= height
    assert all(sum(map(columns_of, line.text)) <= width for line in lines)
    assert lines[0].text.startswith(("HEALTHY" if well else "UNHEALTHY")[:width])
    assert not any("\x1b" in line.text for line in lines)
    assert not ascii_only or all(line.text.isascii() for line in lines)


def test_a_healthy_system() -> None:
    assert str(assess(look())) == "HEALTHY  everything is taken in"
    assert str(assess(look(learned=4))) == "HEALTHY  catching up: 6 records to go"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            {"services": (*SERVICES[:2], ServiceAnswer("redis", "a", error="nothing"))},
            "Redis: nothing",
        ),
        ({"workers": ()}, "no worker episodes; no worker thresholds; no worker history"),
        ({"workers": [worker("history", running=False)]}, "worker history has ended (process 7)"),
        ({"workers": [worker("history", silent_s=12.0)]}, "history has not reported for 12 s"),
        ({"workers": [worker("history", stuck="it lags")]}, "worker history it lags"),
        (
            {"workers": [worker("history", report={"waits_for": ("postgres",)})]},
            "worker history waits for postgres",
        ),
    ],
)
def test_problems_are_named(more: dict[str, Any], why: str) -> None:
    verdict = assess(look(**more))
    assert not verdict.healthy
    assert why in str(verdict)


def test_a_worker_on_another_host_is_there_if_it_owns_partitions() -> None:
    owned = {EVENTS.name: frozenset({0})}
    groups = {EPISODES_GROUP: GroupState(1, owned), HISTORY_GROUP: GroupState(1)}
    verdict = assess(look(workers=(), log=replace(log(10, 10), groups=groups)))
    assert "no worker episodes" not in str(verdict)
    assert "no worker thresholds" in str(verdict)  # its group is not known
    assert "no worker history" in str(verdict)  # a broker that does not say which partitions


def test_an_ended_worker_is_no_problem_if_another_of_its_name_runs() -> None:
    others = [worker("history", instance="b", running=False), *look().workers]
    assert assess(look(workers=tuple(others))).healthy


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"running": False, "ended_by": "no topic"}, "worker spans has ended: no topic"),
        (
            {"report": {"reason": "no topic x", "waits_for": ("kafka",)}},
            "waits for kafka: no topic",
        ),
        ({"silent_s": 60.0}, "worker spans has not reported for 60 s"),
    ],
)
def test_an_optional_worker_is_assessed_where_it_was_found(more: dict[str, Any], why: str) -> None:
    verdict = assess(look(workers=(*look().workers, worker("spans", **more))))
    assert not verdict.healthy
    assert why in str(verdict)
    assert assess(look(workers=(*look().workers, worker("spans")))).healthy


@pytest.mark.parametrize("ended", ALL_WORKERS)
def test_no_worker_that_ended_is_healthy(ended: str) -> None:
    workers = [worker(name, running=name != ended) for name in ALL_WORKERS]
    assert f"worker {ended} has ended" in str(assess(look(workers=tuple(workers))))


def test_the_lag_of_an_optional_worker_counts() -> None:
    spans = worker("spans", report={"lag": {0: 3, 1: 4}})
    seen = look(workers=(*look().workers, spans))
    assert (seen.groups[-1].group, seen.groups[-1].lag, seen.lag) == (SPANS_GROUP, {0: 3, 1: 4}, 7)
    asked = replace(log(10, 10), further=(GroupLag(SPANS_GROUP, "otlp_spans", {0: 9}),))
    assert replace(seen, log=asked).lag == 9, "the broker knows better than the worker's report"
    assert [each.topic for each in replace(seen, log=asked).groups][-1] == "otlp_spans"


def test_waiting_records_without_progress() -> None:
    seen = course(look(0.0, learned=4), look(STILL_S + 1, learned=4))
    assert not assess(look(learned=4), still_s=seen.still_s).healthy
    seen.add(look(STILL_S + 2, learned=5))
    assert seen.still_s == 0.0


def test_rates_and_progress() -> None:
    ahead = tuple(worker(name, report={"done": {0: 5}}) for name in NAMES)
    seen = course(look(0.0), look(2.0, end=30), look(3.0, end=30, workers=ahead))
    assert seen.rate("records") == pytest.approx(20 / 3)
    assert seen.rate("nonsense") is None
    assert seen.progressed["history", "0"] == 3.0


def test_only_changed_thresholds_are_recorded() -> None:
    looks = []
    for at, value in enumerate([0.9, 0.9, 0.8]):
        known = LearnedSummary(leading=(LearnedContext("t", "p", value, 1),))
        looks.append(replace(look(float(at)), learned=known))
    assert list(course(*looks).moved["t", "p"]) == [0.9, 0.8]


def test_a_plain_line_has_all_figures() -> None:
    line = plain_line(course(look(learned=4)))
    assert "HEALTHY  catching up: 6 records to go  log 10 records  stored 100 events" in line
    assert "hit rate 80.0% of 10  net time +4.0 s = 5.0 saved - 1.0 wasted" in line
    assert "dead letters 2 (1 handled)" in line


def test_outcomes_are_summed_at_the_coarsest_level_only() -> None:
    async def served() -> AsyncIterator[dict[str, Any]]:
        for path, outcomes in (("workflow_type=a", 9), ("workflow_type=a/domain=b", 9)):
            yield {"tenant": "t", "path": path, "speculate": 0.5, "outcomes": outcomes, "at": 1,
                   "counts": [0, 0, 0, 0, 9, 6, 0, 0, 0, 3000, 7000]}  # fmt: skip

    found = asyncio.run(summed(served(), 1))
    assert (found.contexts, found.outcomes, found.hits, found.misses) == (2, 9, 6, 3)
    assert (found.saved_ms, found.wasted_ms, found.net_ms) == (7.0, 3.0, 4.0)
    assert len(found.leading) == 1


def test_workers_are_found_by_their_files(tmp_path: Path) -> None:
    assert find_workers(tmp_path) == []
    for name, pid in (("history-0", os.getpid()), ("episodes-b", 2**22 + 1), ("other-0", 1)):
        home = tmp_path / "workers" / name
        home.mkdir(parents=True)
        at = int(time.time() * 1000) - 30_000
        report = Report(worker=name.partition("-")[0], pid=pid, at=at, ready=True)
        (home / "progress").write_bytes(encode_report(report))
        (home / "worker.lock").write_text(f"{pid}\n")
    ended, silent = find_workers(tmp_path)
    assert (ended.name, ended.instance, ended.trouble) == ("episodes", "b", "has ended")
    assert silent.trouble is not None
    assert "has not reported for 3" in silent.trouble
    (tmp_path / "workers/history-0/progress").write_bytes(b"{half")
    assert find_workers(tmp_path)[1].trouble == "is starting"


def test_a_worker_of_an_earlier_configuration_is_left_out(tmp_path: Path) -> None:
    now = time.time()
    for name, pid, began in (
        ("history-0", os.getpid(), now - 50),
        ("spans-0", 2**22 + 1, now - 90),
    ):
        home = tmp_path / "workers" / name
        home.mkdir(parents=True)
        report = Report(worker=name.partition("-")[0], pid=pid, at=int(began * 1000), ready=True)
        (home / "progress").write_bytes(encode_report(report))
        (home / "worker.lock").write_text(f"{pid}\n")
        for file in home.iterdir():
            os.utime(file, (began, began))
    assert [each.name for each in find_workers(tmp_path)] == ["history"]
    found = find_workers(tmp_path, configured=("spans",))
    assert [each.name for each in found] == ["history", "spans"]
    locks = tmp_path / "workers" / "locks"
    locks.mkdir()
    (locks / "spans-0.lock").write_text("0")  # the supervisor started it again
    assert [each.name for each in find_workers(tmp_path)] == ["history", "spans"]


class _Stream(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "drawn"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({}, False),
     ({"TERM": "xterm", "NO_COLOR": "1"}, False)],
)  # fmt: skip
def test_where_a_view_is_drawn(environment: dict[str, str], drawn: bool) -> None:
    assert draws(_Stream(), environment) is drawn
    assert draws(io.StringIO(), environment) is False


@pytest.mark.parametrize(
    ("environment", "ascii_only"),
    [({"LC_ALL": "C"}, True), ({}, True), ({"LANG": "C.UTF-8"}, False),
     ({"LC_CTYPE": "C.UTF-8"}, True), ({"LC_CTYPE": "C.UTF-8", "LANG": "C"}, True),
     ({"LC_ALL": "de_DE.utf8", "LANG": "C"}, False), ({"LANG": "en_US.ISO-8859-1"}, True)],
)  # fmt: skip
def test_which_characters_a_locale_has(environment: dict[str, str], ascii_only: bool) -> None:
    assert only_ascii(_Stream(), environment) is ascii_only


def test_remote_workers_are_asked_over_http() -> None:
    class Judged:
        report = Report(worker="episodes", pid=7, at=1, ready=True, done={0: 5}, lag={0: 2})
        stuck: str | None = None

    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{min(holder.getsockname()[1], 65_000)}"
    judged = Judged()

    async def ask() -> list[Worker]:
        async with serving(address, judged):
            return await asyncio.to_thread(ask_workers, address)

    (well,) = asyncio.run(ask())
    assert (well.name, well.pid, well.lag, well.done, well.trouble) == ("episodes", 7, 2, 5, None)
    judged.stuck = "it lags"
    (stuck,) = asyncio.run(ask())
    assert stuck.trouble == "it lags"
    assert ask_workers(address) == []


def test_a_long_open_transaction_is_named() -> None:
    at = 1_760_000_000.0
    assert assess(look(at, log=held_up(LONG_S - 1, at))).healthy
    verdict = assess(look(at, log=held_up(95.0, at)))
    assert verdict.reasons == (
        "headstart.events partition 0: a transaction open for 95 s at offset 10 holds 7 records "
        "back",
    )


def test_the_oldest_of_many_open_transactions_are_listed() -> None:
    held = [
        OpenTransaction("headstart.events", number, 5, 2, since=1_000_000 - 40_000 - number)
        for number in range(1_000)
    ]
    seen = look()
    log = replace(seen.log, open=tuple(held)) if seen.log else None
    verdict = assess(replace(seen, at=1_000.0, log=log))
    assert len(verdict.reasons) == 4
    for reason, number in zip(verdict.reasons, (999, 998, 997), strict=False):
        assert f"headstart.events partition {number}:" in reason
    assert verdict.reasons[3].startswith("and 997 more")
    assert len(str(verdict)) < 600
    few = replace(seen, at=1_000.0, log=replace(log, open=tuple(held[:3])) if log else None)
    assert not any("more" in each for each in assess(few).reasons)
