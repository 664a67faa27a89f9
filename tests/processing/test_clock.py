"""What expires goes by clock records: no producer's clock does anything to another's contexts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from processing.config import LearningConfig
from processing.contexts.eviction import HOUR_MS
from processing.state.clock import STEP_MS, TICK_MS, PartitionClock, latest_of
from processing.state.open_predictions import START_LIFE_MS
from processing.state.rows import (
    CONTEXT,
    PARTITION_KEY,
    TaskStateRow,
    context_key,
    decode_context,
    decode_partition,
    encode_context,
    encode_partition,
    is_deleted,
)
from processing.task import PartitionTask
from tests.processing.building import (
    EPOCH,
    TD,
    Table,
    context,
    counts,
    event,
    judged,
    live,
    reasons,
    start,
)
from tests.processing.control_records import EVERY, RETAIL
from tests.processing.timed_log import NOW, Log, at, batch_of, event_record
from topics.control.messages import Clock, Downweight, Seed, Seeded

DAY_MS = 24 * HOUR_MS
FUTURE = NOW + 74 * 365 * DAY_MS


def run(
    log: Log, table: Table | None = None, cuts: tuple[int, ...] = (), **rules: Any
) -> tuple[Table, list[str]]:
    """Apply a log; die, and restore the rows, at every cut."""
    table = {} if table is None else table
    refused: list[str] = []
    for begin, end in pairwise([0, *(cut for cut in cuts if 0 < cut < len(log)), len(log)]):
        core = PartitionTask(0, 1, EPOCH, LearningConfig(TD, **rules), table.get)
        core.restore(list(table.items()))
        core.apply(batch_of(log[begin:end], core.applied_offset + 1))
        commit = core.commit()
        table.update(commit.rows)
        refused += reasons(commit)
    return table, refused


def kept(table: Table) -> set[str]:
    return {key.decode().partition("\x1f")[2] for key in live(table) if key.startswith(CONTEXT)}


def test_an_event_from_2100_deletes_nothing() -> None:
    log = [at(NOW), event_record(judged(timestamp=NOW)), event_record(start(timestamp=NOW + 5))]
    table, _ = run([*log, event_record(judged(timestamp=FUTURE, workflow_id="evil"), FUTURE)])
    assert kept(table) == {EVERY, RETAIL}
    row = counts(table)
    assert (row.clock, row.expired, row.unresolved) == (NOW, 0, 0)
    assert context(table).outcomes == 2, "it counts: it does no harm"
    assert context(table).at < NOW + TICK_MS
    done = event(task_id="t1", tool_id="search", timestamp=NOW + 9)
    table, _ = run([event_record(done)], table)
    assert context(table).outcomes == 3, "the start is still open"


def test_a_clock_that_is_an_hour_fast_closes_no_guess_of_others() -> None:
    log = [at(NOW), event_record(start(timestamp=NOW))]
    log += [event_record(judged(timestamp=NOW + 3_588_000), NOW) for _ in range(100)]
    log += [at(NOW + TICK_MS), event_record(event(task_id="t1", tool_id="search", timestamp=NOW))]
    table, _ = run(log)
    assert counts(table).unresolved == counts(table).unmatched == 0
    assert context(table).outcomes == 101


def test_a_slow_clock_costs_its_own_producer_nothing_either() -> None:
    slow = NOW - 40 * DAY_MS
    log = [at(NOW), event_record(start(timestamp=slow), NOW), at(NOW + HOUR_MS)]
    log += [event_record(event(task_id="t1", tool_id="search", timestamp=slow), NOW + HOUR_MS)]
    log += [at(NOW + 2 * HOUR_MS)]
    table, _ = run(log)
    assert context(table).outcomes == 1
    assert (counts(table).expired, context(table).at) == (0, NOW + HOUR_MS)


kinds = st.sampled_from(["complete", "start", "end", "other"])
moments = st.integers(-3 * HOUR_MS, 3 * HOUR_MS) | st.sampled_from(
    [0, FUTURE - NOW, -40 * DAY_MS, 59 * 60_000]
)


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """What arrives: producer ("clock", "ours", "foreign"), true time, content."""
    log, now = [], NOW
    for _ in range(draw(st.integers(1, 25))):
        now += draw(st.sampled_from([0, 1_000, TICK_MS, HOUR_MS // 2, HOUR_MS, 5 * HOUR_MS]))
        producer = draw(st.sampled_from(["clock", "ours", "ours", "foreign", "foreign"]))
        log.append((producer, now, draw(st.integers(0, 7))))
    return log


def made(log: list[tuple[str, int, int]], skews: list[int]) -> Log:
    """Return the log, what is foreign by a clock that is ahead by so much each time."""
    found: Log = [at(NOW)]
    skewed = iter(skews)
    for producer, now, what in log:
        if producer == "clock":
            found.append(at(now))
            continue
        skew = next(skewed) if producer == "foreign" else 0
        name = {"user_id": f"{producer}{what % 3}", "task_id": f"{producer}{what % 2}"}
        more = name | {
            "timestamp": now + skew,
            "workflow_id": producer,
            "origin": [producer, len(found)],
        }
        one = start(**more) if what < 2 else event(tool_id="search", **more)
        one = judged(**more) if what > 4 else one
        found.append((one, now + max(0, skew)))
    return found


def without_moments(table: Table) -> Table:
    """Return the rows, times of contexts to the tick."""
    found = {}
    for key, raw in table.items():
        if key.startswith(CONTEXT) and not is_deleted(raw):
            row = decode_context(raw)
            found[key] = encode_context(row._replace(at=row.at // TICK_MS))
        else:
            found[key] = raw
    return found


@given(
    log=logs(),
    skews=st.lists(moments, min_size=25, max_size=25),
    cuts=st.lists(st.integers(1, 25), max_size=4),
    most=st.sampled_from([4, 100]),
    idle=st.sampled_from([2 * HOUR_MS, 30 * DAY_MS]),
)
def test_a_foreign_clock_changes_nothing(
    log: list[tuple[str, int, int]], skews: list[int], cuts: list[int], most: int, idle: int
) -> None:
    """Nor does it matter where the process that applies the log dies."""
    rules = {"idle_ms": idle, "most_contexts": most}
    right, _ = run(made(log, [0] * 25), **rules)
    table, refused = run(made(log, skews), cuts=tuple(sorted(set(cuts))), **rules)
    assert not refused
    assert without_moments(table) == without_moments(right)
    whole, _ = run(made(log, skews), **rules)
    assert table == whole


def test_the_first_clock_record_puts_right_what_an_event_from_the_future_did() -> None:
    table, _ = run(
        [
            event_record(judged(timestamp=FUTURE), FUTURE),
            event_record(start(timestamp=FUTURE), FUTURE),
        ]
    )
    assert counts(table).clock == FUTURE
    table, _ = run([at(NOW)], table)
    assert (counts(table).clock, counts(table).began) == (NOW, NOW)
    used, _ = run([at(NOW + HOUR_MS), event_record(judged(timestamp=NOW + HOUR_MS))], dict(table))
    assert context(used).at == NOW + HOUR_MS
    assert counts(used).unresolved == 0
    later = [at(NOW + hours * HOUR_MS) for hours in range(1, 31 * 24)]
    table, _ = run(later, table)
    assert counts(table).unresolved == 1, "nor is what it left immortal"
    assert kept(table) == set()


def test_without_clock_records_rows_are_as_they_were() -> None:
    row = TaskStateRow(NOW, 5, 1, 2, 3, 4, 6, 7, 8)
    old = b"\x99\xcf" + NOW.to_bytes(8, "big") + b"\x05\x01\x02\x03\x04\x06\x07\x08"
    assert encode_partition(row, 1, 2)[16:] == old
    assert decode_partition(bytes(16) + old) == row
    assert decode_partition(bytes(16) + b"\x9a" + old[1:] + b"\xc3").idle_left
    began = TaskStateRow(NOW, began=NOW, gaps=((1, 2),))
    assert decode_partition(encode_partition(began, 1, 2)) == began


def test_events_during_an_outage_live_as_long_as_others() -> None:
    """Executors went on for three hours; all that is read before the new worker's clock record."""
    away = NOW + 3 * HOUR_MS
    log = [at(NOW), event_record(start(timestamp=away - 60_000))]
    log += [at(away + minutes * 60_000) for minutes in range(0, 60, 5)]
    done = event_record(event(task_id="t1", tool_id="search", timestamp=away + HOUR_MS))
    table, _ = run([*log, done])
    assert context(table).outcomes == 1
    later = [at(away + minutes * 60_000) for minutes in range(60, 200, 5)]
    table, _ = run([*log, *later])
    assert counts(table).unresolved == 1


def test_a_start_lives_for_an_hour_and_not_much_longer() -> None:
    ticks = [at(NOW + tick * TICK_MS) for tick in range(40)]
    lived = next(
        tick
        for tick in range(1, 40)
        if counts(run([ticks[0], event_record(start(timestamp=NOW)), *ticks[1:tick]])[0]).unresolved
    )
    assert START_LIFE_MS < (lived - 1) * TICK_MS <= START_LIFE_MS + 3 * TICK_MS


def test_workers_whose_clocks_differ_move_the_clock_on_only() -> None:
    clock = PartitionClock(TaskStateRow())
    seen = []
    for minutes in (0, 7, 3, -600, 10, 8, 15):
        clock.apply(NOW + minutes * 60_000)
        seen.append((clock.row.clock - NOW) // 60_000)
    assert seen == [0, 5, 5, 5, 10, 10, 15]


def test_one_clock_record_that_is_wrong_expires_little() -> None:
    """It may be forged, where no operators' key is set, or of a worker whose clock is wrong."""
    log = [
        at(NOW),
        event_record(judged(timestamp=NOW)),
        event_record(start(timestamp=NOW)),
        at(FUTURE),
    ]
    table, _ = run(log)
    assert counts(table).clock == NOW + STEP_MS
    assert (counts(table).unresolved, len(kept(table))) == (0, 2)
    table, _ = run([at(NOW + TICK_MS), at(FUTURE)], table)
    assert counts(table).clock == NOW + 2 * STEP_MS, "the correct one in between contradicted it"


def test_a_clock_catches_up_with_days_after_a_few_records() -> None:
    clock = PartitionClock(TaskStateRow())
    clock.apply(NOW)
    away = NOW + 20 * DAY_MS
    needed = next(n for n in range(1, 30) if clock.apply(away) and clock.row.clock == away)
    assert needed == 9
    assert clock.row.gaps == ((NOW, away),)
    assert clock.reached(START_LIFE_MS) == NOW + START_LIFE_MS, "what came since lives on"


def test_gaps_are_forgotten_once_they_no_longer_matter() -> None:
    clock, now = PartitionClock(TaskStateRow()), NOW
    clock.apply(now)
    most = 0
    for tick in range(1, 4_000):
        now += TICK_MS * (1 if tick % 3 else 1 + tick % 11)
        clock.apply(now)
        most = max(most, len(clock.row.gaps))
    assert most < 40


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (NOW // 1000, "expected `int` >= 946684800000|not a control record"),
        (NOW + 2 * HOUR_MS, "ahead of the record's Kafka timestamp"),
    ],
)
def test_a_clock_record_that_cannot_be_is_a_dead_letter(value: int, reason: str) -> None:
    table, refused = run([at(NOW), (Clock("c", value), NOW)])
    assert len(refused) == 1
    assert any(each in refused[0] for each in reason.split("|"))
    assert counts(table).clock == NOW


def test_where_there_is_a_key_only_signed_clock_records_count() -> None:
    table, refused = run([at(NOW)], operators_key=b"key")
    assert "not signed" in refused[0]
    assert counts(table).began == 0


def test_eviction_follows_the_arrival_of_the_newest_outcome() -> None:
    """One from the future is neither the last to go, nor are those of a slow clock the first."""
    log = [
        at(NOW),
        event_record(judged(user_id="future", timestamp=FUTURE), FUTURE),
        at(NOW + TICK_MS),
    ]
    log += [
        event_record(judged(user_id="slow", timestamp=NOW - DAY_MS), NOW),
        at(NOW + 2 * TICK_MS),
    ]
    log += [event_record(judged(user_id="new", timestamp=NOW + 2 * TICK_MS))]
    table, _ = run(log, most_contexts=4)
    assert kept(table) == {EVERY, RETAIL, f"{RETAIL}/user_id=slow", f"{RETAIL}/user_id=new"}


def test_a_fast_clock_lifts_no_weighing() -> None:
    path = f"{RETAIL}/user_id=bad"
    weighing = Downweight("w", NOW, "acme", path, 1000, NOW + 6 * HOUR_MS)
    log = [at(NOW), (weighing, NOW)]
    log += [
        event_record(judged(user_id="bad", timestamp=FUTURE + n), FUTURE + n) for n in range(20)
    ]
    table, _ = run(log)
    taught, alone = context(table), context(table, path)
    assert taught.outcomes == alone.outcomes == 20
    assert taught.state == TD.initial() != alone.state


def test_a_seed_counts_as_of_its_arrival() -> None:
    seeded = Seeded("td", TD.version, TD.initial(), 9, EVERY, 4, 2)
    table, refused = run([at(NOW), (Seed("s", NOW - DAY_MS, "acme", 0, (seeded,)), NOW)])
    assert not refused
    assert decode_context(table[context_key("acme", EVERY)]).at == NOW


def test_the_partitions_row_comes_after_others_all_the_same() -> None:
    """A store has rows in order of their keys, a rebuild as they were staged."""
    log = [at(NOW)] + [event_record(judged(user_id=f"u{n}", timestamp=NOW + n)) for n in range(5)]
    rules = {"most_contexts": 5}
    table, _ = run(log, **rules)
    turned = dict(reversed(table.items()))
    assert next(iter(turned)) == PARTITION_KEY or list(turned)[-1] == PARTITION_KEY
    more = [at(NOW + TICK_MS), event_record(judged(user_id="another", timestamp=NOW))]
    assert live(run(more, table, **rules)[0]) == live(run(more, turned, **rules)[0])


@given(st.integers(0, 3_600_000), st.integers(0, 2 * TICK_MS - 1))
def test_no_outcome_happened_later_than_stated(clock: int, later: int) -> None:
    """`later`: how far the partition's clock is behind as the outcome arrives."""
    row = TaskStateRow()
    core = PartitionClock(row)
    core.apply(1_760_000_000_000 + clock)
    now = row.clock + later
    held = core.outcome_time(now)
    assert latest_of(held) >= now
    assert latest_of(held) - held < TICK_MS or later >= TICK_MS - 1


@given(st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 14)), max_size=4))
def test_no_outcome_after_a_pause_happened_later_than_stated(
    pauses: list[tuple[int, int]],
) -> None:
    """`pauses`: minutes without a clock record, and how many records a tick apart follow.

    A gap is forgotten once ten times its length has passed.
    """
    clock, now = PartitionClock(TaskStateRow()), NOW
    clock.apply(now)
    learned = []
    for minutes, records in pauses:
        now += minutes * 60_000
        for _ in range(records):
            learned.append(
                (clock.outcome_time(now), now)
            )  # it waited, or came before the clock record
            clock.apply(now)
            learned.append((clock.outcome_time(now + 1), now + 1))
            for held, arrived in learned:
                latest = latest_of(held, clock.row, now + 1)
                assert latest >= arrived or now - arrived > 9 * (arrived - held)
            now += TICK_MS
    assert latest_of(clock.outcome_time(now), clock.row, now) - now < 3 * TICK_MS


def test_a_context_is_as_late_as_the_clock_is_behind() -> None:
    clock = PartitionClock(TaskStateRow())
    clock.apply(NOW)
    before, back = clock.outcome_time(NOW - TICK_MS), NOW + 9 * HOUR_MS
    first = clock.outcome_time(back)
    seen = []
    for tick in range(6):
        now = back + tick * TICK_MS
        clock.apply(now)
        seen.append(
            [latest_of(held, clock.row, now) >= back for held in (first, clock.outcome_time(now))]
        )
    assert seen == [[True, True]] * 6
    assert clock.row.doubled == 0, "it has caught up"
    assert latest_of(before - TICK_MS, clock.row, now) < NOW
    assert latest_of(first, clock.row, now) < now
