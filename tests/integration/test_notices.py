"""Notices end to end: those of one plain pass over the published values, despite kills."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from deploy.system import System
from headstart import Emitter
from processing.notices import Key, NoticeState, take, watchable
from processing.state.clock import TICK_MS
from tests.integration.supervision import until
from tests.patience import PATIENCE_S
from topics.catalogue import EVENTS, NOTICES, THRESHOLDS
from topics.control.messages import CONTROL_HEADER
from topics.notices.messages import Notice, decode_notice
from topics.schema.json_schema import PublishedThreshold

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]
SentNotices = Callable[[], list[Notice]]


def drifting(judged: Callable[..., Event], tenant: str, outcomes: int) -> list[Event]:
    """Predictions with confidences that from the middle on are wrong far too often."""
    chance, now, events = random.Random(11), time.time_ns() // 1_000_000, []
    for number in range(outcomes):
        confidence = chance.uniform(0.6, 1.0)
        truth = confidence if number < outcomes // 2 else confidence - 0.5
        data = {
            "context": {"domain": "retail"},
            "prediction": {"was_correct": chance.random() < truth, "speculated": True},
        }
        at = now - 40 * (outcomes - number)
        events.append(judged(tenant, confidence=confidence, data=data, timestamp=at))
    return events


@pytest.fixture
def sent_notices(read_topic: Callable[..., list[Any]], tenant: str) -> SentNotices:
    """The topic's notices of this test's tenant, also repeated ones."""

    def read() -> list[Notice]:
        found = [decode_notice(record.value) for record in read_topic(NOTICES.name)]
        return [each for each in found if each.tenant == tenant]

    return read


@pytest.fixture
def plain(read_topic: Callable[..., list[Any]], tenant: str) -> Callable[[], set[str]]:
    """The ids of one plain pass over the published thresholds."""

    def read() -> set[str]:
        by_partition: dict[int, list[tuple[int, PublishedThreshold]]] = defaultdict(list)
        for record in read_topic(THRESHOLDS.name):
            if record.value is not None:
                value = msgspec.json.decode(record.value, type=PublishedThreshold)
                if watchable(value) and value.tenant == tenant:
                    by_partition[record.partition].append((record.partition, value))
        ids, known = set(), dict[Key, NoticeState]()
        for values in by_partition.values():
            found = take(values, known)
            ids |= {notice.id for _partition, notice in found.notices}
        return ids

    return read


def kill_the_history_worker(system: System) -> None:
    """Kill it wherever it is, and wait until another works."""
    supervisor = system.supervisor
    assert supervisor is not None
    before = supervisor.pids["history"]
    os.kill(before, signal.SIGKILL)
    until(system, lambda: supervisor.pids.get("history", before) != before)
    until(system, lambda: supervisor.ready)


def test_no_notice_is_lost_or_repeated_when_the_worker_is_killed(
    system: System,
    headstart: Any,
    stored: Any,
    tenant: str,
    judged: Callable[..., Event],
    sent_notices: SentNotices,
    plain: Callable[[], set[str]],
) -> None:
    events, kafka = drifting(judged, tenant, 6_400), system.addresses.kafka
    with Emitter(kafka) as emitter:
        for number, event in enumerate(events):
            emitter.emit(event)
            if number % 50 == 49:  # several values of each context, whatever the machine does
                emitter.flush(PATIENCE_S)
            if number % 1_600 == 1_499:
                kill_the_history_worker(system)
    assert system.drain(PATIENCE_S)
    expected = plain()
    kept = stored.query("SELECT id, kind FROM notices WHERE tenant = %s", tenant)
    assert {row[0] for row in kept} == expected
    assert [row[1] for row in kept].count("drift") == 2  # of the type and of the domain
    until(system, lambda: {each.id for each in sent_notices()} == expected)

    asked = ("--kind", "drift", "--tenant", tenant, "--since", "1h", "--json")
    ended = headstart("notices", *asked, "--data", system.data, seconds=PATIENCE_S)
    assert ended.returncode == 0, ended.stderr
    listed = json.loads(ended.stdout)["notices"]
    assert {each["path"] for each in listed} == {
        "workflow_type=refund",
        "workflow_type=refund/domain=retail",
    }
    assert {each["evidence"]["way"] for each in listed} == {"worse"}
    assert all(each["evidence"]["statistic"] > each["evidence"]["alarm"] for each in listed)


def test_an_override_gives_one_notice_when_set_and_one_when_it_ends(
    system: System, headstart: Any, launch: Any, stored: Any, tenant: str, sent_notices: SentNotices
) -> None:
    where = ("--tenant", tenant, "--data", system.data)
    following = launch("notices", "list", "--follow", *where)

    def set_for(workflow_type: str, *more: str) -> None:
        given = ("--workflow-type", workflow_type, "--speculate", ".9", "--by", "me", *more)
        ended = headstart("config", "set", "threshold", *given, *where, seconds=PATIENCE_S)
        assert ended.returncode == 0, ended.stderr

    set_for("refund", "--for", "12s")
    until(
        system,
        lambda: {each.kind for each in sent_notices()} == {"override_set", "override_expired"},
    )
    kill_the_history_worker(system)
    set_for("other")
    until(system, lambda: any(each.workflow_type == "other" for each in sent_notices()))
    expected = [
        ("override_set", "refund"), ("override_expired", "refund"), ("override_set", "other"),
    ]  # fmt: skip
    kept = stored.query(
        "SELECT kind, workflow_type, evidence->>'by' FROM notices WHERE tenant = %s ORDER BY found",
        tenant,
    )
    assert kept == [(*each, "me") for each in expected]
    lines = following.until('"workflow_type":"other"', PATIENCE_S).splitlines()
    shown = [json.loads(line) for line in lines]
    assert [(each["kind"], each["workflow_type"]) for each in shown] == expected


def test_a_flooding_user_is_reported_and_downweighted_by_a_control_record(
    system: System,
    headstart: Any,
    judged: Callable[..., Event],
    read_topic: Callable[..., list[Any]],
    tenant: str,
    sent_notices: SentNotices,
) -> None:
    kafka, now = system.addresses.kafka, time.time_ns() // 1_000_000
    # Of times outside the tick in which they arrive no pace is reported: all are within this one.
    if (left := TICK_MS - now % TICK_MS) < 150_000:
        time.sleep(left / 1000 + 5)
        now += left + 5_000
    chance, events, at = random.Random(5), [], float(now // TICK_MS * TICK_MS + 5_000)
    for number in range(5_000):
        flooding = number >= 3_500
        at += chance.expovariate(1 / (0.6 if flooding else 30))
        user = "bad" if flooding and chance.random() < 0.95 else f"u{chance.randrange(19)}"
        events.append(judged(tenant, user_id=user, timestamp=int(at)))
    with Emitter(kafka) as emitter:
        for number, event in enumerate(events):
            emitter.emit(event)
            # What waits is learned at once and published as one value: in it no flood would show.
            if number % 250 == 249:
                emitter.flush(PATIENCE_S)
                assert system.drain(PATIENCE_S)

    until(system, lambda: any(each.evidence.get("what") == "user" for each in sent_notices()))
    (flood,) = {
        each.id: each for each in sent_notices() if each.evidence.get("what") == "user"
    }.values()
    assert flood.path == "workflow_type=refund/domain=retail/user_id=bad"
    controls = [
        json.loads(record.value)
        for record in read_topic(EVENTS.name)
        if any(name == CONTROL_HEADER for name, _value in record.headers)
    ]
    ours = [each for each in controls if each["kind"] == "weigh" and each["tenant"] == tenant]
    assert {(each["id"], each["every"]) for each in ours} == {(flood.id, flood.evidence["every"])}

    assert system.drain(PATIENCE_S)
    places = ("--postgres", system.addresses.postgres, "--redis", system.addresses.redis)
    verified = headstart("verify", "--kafka", kafka, *places, "--json", seconds=PATIENCE_S)
    assert json.loads(verified.stdout)["counts"] == {}, verified.stderr
