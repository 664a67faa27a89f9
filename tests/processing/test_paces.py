"""Notices of how fast outcomes come, by a partition's clock: none if that is not known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from agents.thresholds.sound_clock import ClockSchedule
from processing.config import LearningConfig
from processing.notices import Key, NoticeState, take
from processing.state.clock import TICK_MS
from processing.task import PartitionTask
from tests.processing.building import EPOCH, TD, Table, judged
from tests.processing.control_records import RETAIL
from tests.processing.timed_log import NOW, Log, at, batch_of, event_record
from topics.notices.messages import Notice

LOOK_S = 10
FLUSH_S = 25
USERS = 8


class Service(NamedTuple):
    """Seconds: how long it runs, from when in a tick on, and when no worker is there.

    `pace`: outcomes in a second; from `night` on one in `USERS` is left, all of one user; from
    `flood` on one user sends `FASTER` more in a second.
    """

    seconds: int
    phase: int
    away: range = range(0)
    night: int = 10**9
    flood: int = 10**9
    pace: int = 1


FASTER = 4


def outcomes(service: Service, second: int) -> Iterator[str]:
    """Yield whose outcomes come in a second."""
    for number in range(second * service.pace, (second + 1) * service.pace):
        if second < service.night or number % USERS == 0:
            yield f"u{number % USERS}"
    if second >= service.flood:
        yield from ["u7"] * FASTER


def notices(service: Service) -> list[Notice]:
    """Return the notices about a service whose worker sends the time as a real one does."""
    table: Table = {}
    core, witness = PartitionTask(0, 1, EPOCH, LearningConfig(TD), table.get), ClockSchedule()
    log: Log = []
    known: dict[Key, NoticeState] = {}
    found_notices: list[Notice] = []
    for second in range(service.seconds):
        now = NOW + (service.phase + second) * 1_000
        if second == service.away.stop:
            witness = ClockSchedule()
        if second not in service.away:
            if second % LOOK_S == 0 and witness.due(core, now):
                log.append(at(now))
                witness.sent(now)
            if second % FLUSH_S == 0 and log:
                batch, position = batch_of(log, core.applied_offset + 1), 0
                while position < len(batch):
                    position = core.apply(batch, position)
                commit = core.commit()
                table.update(commit.rows)
                found = take([(0, each) for each in commit.thresholds], known)
                known |= found.known
                found_notices += [notice for _partition, notice in found.notices]
                log = []
        log += [
            event_record(judged(timestamp=now + place, user_id=user, workflow_id=str(second)))
            for place, user in enumerate(outcomes(service, second))
        ]
    return found_notices


PHASES = [0, 150, TICK_MS // 1_000 - 1]


def paces(service: Service) -> list[Notice]:
    """Return the notices of how fast outcomes come."""
    return [each for each in notices(service) if each.evidence.get("what") in {"rate", "user"}]


@pytest.mark.parametrize("phase", PHASES)
def test_a_user_alone_at_night_is_no_flood(phase: int) -> None:
    assert paces(Service(4_000, phase, night=1_200, pace=8)) == []


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("minutes", [50, 180])
def test_events_during_an_outage_give_no_notice(phase: int, minutes: int) -> None:
    away = range(4_000, 4_000 + 60 * minutes)
    assert paces(Service(away.stop + 3_000, phase, away)) == []
    assert paces(Service(away.stop + 3_000, phase, away, night=4_000)) == []


@pytest.mark.parametrize("phase", PHASES)
def test_a_flooding_user_is_still_reported(phase: int) -> None:
    found_notices = paces(Service(6_000, phase, flood=5_000))
    assert [each.path for each in found_notices if each.evidence["what"] == "user"] == [
        f"{RETAIL}/user_id=u7"
    ]
    (flood,) = [each for each in found_notices if each.evidence["what"] == "user"]
    assert FASTER / 2 < float(flood.evidence["faster"]) < 2 * FASTER


@pytest.mark.parametrize("phase", PHASES)
def test_a_user_who_floods_after_an_outage_is_reported(phase: int) -> None:
    away = range(4_000, 7_000)
    found_notices = paces(Service(9_500, phase, away, flood=8_500))
    assert [each.path for each in found_notices] == [f"{RETAIL}/user_id=u7"]
