"""`headstart dead-letters` on the running system: listed, shown, corrected, replayed, dropped."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.system import System
from headstart.connections.kafka_connections import new_producer
from headstart.keys import event_key
from processing.dead_letter_replay import replay_of
from processing.records.partitioner import partition_for
from tests.patience import PATIENCE_S
from topics.catalogue import EPISODES_GROUP, EVENTS, THRESHOLDS_GROUP
from topics.dead_letters.log import DeadLetterLog, DeadLetterSender
from topics.dead_letters.messages import GROUP_HEADER, ORIGIN_HEADER
from topics.epoch import read_epoch

pytestmark = [pytest.mark.integration, pytest.mark.any_broker]

Event = dict[str, Any]
BOTH = [EPISODES_GROUP, THRESHOLDS_GROUP]


async def send(kafka: str, partition: int, key: bytes, value: bytes) -> int:
    async with new_producer(kafka) as producer:
        sent = await producer.send_and_wait(EVENTS.name, value, key=key, partition=partition)
        return int(sent.offset)


class Desk:
    """An operator of the running system, and a producer that makes mistakes."""

    def __init__(self, system: System, tenant: str, headstart: Callable[..., Any]) -> None:
        self.system, self.kafka, self._headstart = system, system.addresses.kafka, headstart
        self.key, self.partition = event_key(tenant, "refund"), partition_for(tenant, "refund", 4)

    def send(self, value: bytes, partition: int | None = None) -> int:
        """Produce one record as third parties do; return its offset once all agents saw it."""
        where = self.partition if partition is None else partition
        offset = asyncio.run(send(self.kafka, where, self.key, value))
        assert self.system.drain(PATIENCE_S)
        return offset

    def run(self, *arguments: str | Path, stdin: str | None = None) -> Any:
        return self._headstart("dead-letters", *arguments, "--kafka", self.kafka, stdin=stdin)

    def json(self, *arguments: str | Path, code: int = 0) -> Event:
        ended = self.run(*arguments, "--json")
        assert ended.returncode == code, ended.stderr
        output: Event = json.loads(ended.stdout.splitlines()[-1])
        return output

    def listed(self, offset: int, *more: str) -> list[Event]:
        """The dead letters of a record, those of the first group first."""
        found = self.json("list", "--limit", "1000", *more)["dead_letters"]
        return sorted(
            (
                each
                for each in found
                if (each["partition"], each["offset"]) == (self.partition, offset)
            ),
            key=lambda each: str(each["group"]),
        )


@pytest.fixture
def desk(system: System, tenant: str, headstart: Callable[..., Any]) -> Desk:
    return Desk(system, tenant, headstart)


def encode(*events: Event) -> bytes:
    return json.dumps(events).encode()


def test_a_bad_event_is_corrected_for_one_group_and_then_for_the_other(
    desk: Desk,
    stored: Any,
    tenant: str,
    judged: Callable[..., Event],
    tmp_path: Path,
    read_topic: Callable[..., list[Any]],
) -> None:
    good, bad = judged(tenant), judged(tenant, confidence=7)
    offset = desk.send(encode(good, bad))

    episodes, thresholds = letters = desk.listed(offset)
    assert [each["group"] for each in letters] == BOTH
    for each in letters:
        assert "confidence: must be at least 0" in each["reason"]
        assert (each["topic"], each["frame_place"]) == (EVENTS.name, 1)
        assert each["key"] == f"{tenant}\x1frefund"

    shown = desk.run("show", episodes["at"]).stdout
    assert f'"tenant": "{tenant}"' in shown
    assert f"{tenant}\\x1frefund" in shown
    assert json.loads(desk.run("show", episodes["at"], "--raw").stdout) == bad
    assert json.loads(desk.json("show", episodes["at"])["value"]) == bad

    refused = desk.json("replay", episodes["at"], "--yes", code=1)
    assert refused["replayed"] == 0
    assert "would be refused again: confidence" in refused["not_replayed"][0]["reason"]
    assert len(desk.listed(offset)) == 2, "what was not replayed stays"

    corrected = tmp_path / "event.json"
    corrected.write_text(json.dumps({**bad, "confidence": 0.7}))
    done = desk.json("replay", episodes["at"], "--file", corrected, "--yes")
    assert done == {"replayed": 1, "not_replayed": []}
    assert desk.system.drain(PATIENCE_S)
    assert stored.ids() == sorted([good["id"], bad["id"]])
    assert stored.counted("refund")["workflow_type=refund"] == 1, "not for the other group"
    last = read_topic(EVENTS.name)
    (record,) = [each for each in last if each.headers and each.key == desk.key]
    epoch = desk.system.epoch
    assert epoch is not None
    lane = f"dead-letters/{epoch.number}/{episodes['at'].replace(':', '/')}:0"
    assert dict(record.headers) == {
        GROUP_HEADER: EPISODES_GROUP.encode(),
        ORIGIN_HEADER: lane.encode(),
    }
    assert record.partition == desk.partition

    (left,) = desk.listed(offset)
    assert left["group"] == THRESHOLDS_GROUP
    desk.json("replay", thresholds["at"], "--file", corrected, "--yes")
    assert desk.system.drain(PATIENCE_S)
    assert stored.ids() == sorted([good["id"], bad["id"]]), "stored once"
    assert stored.counted("refund")["workflow_type=refund"] == 2
    assert desk.listed(offset) == []
    handled = desk.listed(offset, "--handled")
    assert [each["handled"] for each in handled] == ["replayed", "replayed"]
    again = desk.run("replay", episodes["at"], "--file", corrected, "--yes")
    assert (again.returncode, again.stdout) == (1, "")
    assert "was replayed already" in again.stderr


def test_one_file_corrects_an_event_for_both_groups(
    desk: Desk, stored: Any, tenant: str, judged: Callable[..., Event], tmp_path: Path
) -> None:
    bad, other = judged(tenant, success="yes"), judged(tenant, success="no")
    first, second = desk.send(encode(bad)), desk.send(encode(other))
    at = [each["at"] for each in desk.listed(first)]
    corrected = tmp_path / "event.json"
    corrected.write_text(json.dumps({**bad, "success": True}))
    mixed = [*at, desk.listed(second)[0]["at"]]
    refused = desk.run("replay", *mixed, "--file", corrected, "--yes")
    assert refused.returncode == 1
    assert "--file corrects one event" in refused.stderr
    assert desk.json("replay", *at, "--file", corrected, "--yes")["replayed"] == 2
    assert desk.system.drain(PATIENCE_S)
    assert stored.ids() == [bad["id"]]
    assert stored.counted("refund")["workflow_type=refund"] == 1


def test_misplaced_records_are_replayed_to_the_partition_of_their_key(
    desk: Desk, stored: Any, tenant: str, judged: Callable[..., Event]
) -> None:
    strayed = judged(tenant)
    wrong = (desk.partition + 1) % 4
    desk.send(encode(strayed), partition=wrong)
    assert stored.ids() == [strayed["id"]], "the memory still keeps it"
    assert stored.counted("refund") == {}
    filters = ("--all", "--group", "thresholds", "--reason", f"partition {desk.partition};")
    assert desk.json("replay", *filters, "--since", "10m", "--yes")["replayed"] >= 1
    assert desk.system.drain(PATIENCE_S)
    assert stored.ids() == [strayed["id"]]
    assert stored.counted("refund")["workflow_type=refund"] == 1


def test_a_replay_repeated_after_a_crash_stores_once(
    desk: Desk, stored: Any, tenant: str, judged: Callable[..., Event]
) -> None:
    """What a crash between replay and note does: it is still listed, and sent again."""
    bad = judged(tenant, confidence=7)
    at = desk.listed(desk.send(encode(bad)))[0]["at"]
    corrected = json.dumps({**bad, "confidence": 0.7}).encode()

    async def twice() -> None:
        log, epoch = await DeadLetterLog.open(desk.kafka), await read_epoch(desk.kafka)
        partition, offset = map(int, at.split(":"))
        letter = await log.letter(partition, offset)
        sent = [
            replay_of(letter, corrected, epoch=epoch.number, partitions=4, now_ms=bad["timestamp"])
            for _ in range(2)
        ]
        assert sent[0] == sent[1], "by their lane they are the same"
        async with DeadLetterSender(desk.kafka) as sender:
            await sender._send(EVENTS.name, sent)  # and the crash comes before the note
        assert (await DeadLetterLog.open(desk.kafka)).handling(letter) is None

    asyncio.run(twice())
    assert desk.system.drain(PATIENCE_S)
    assert stored.ids() == [bad["id"]]


def test_dropped_letters_are_hidden(
    desk: Desk, stored: Any, tenant: str, judged: Callable[..., Event]
) -> None:
    offset = desk.send(b'{"broken\x1b[2J')
    episodes, thresholds = desk.listed(offset)
    assert "\x1b" not in desk.run("list").stdout + desk.run("show", episodes["at"]).stdout
    refused = desk.run("drop", episodes["at"], stdin="n\n")
    assert refused.returncode == 1
    assert "drop 1 dead letter?" in refused.stderr
    assert len(desk.listed(offset)) == 2
    assert desk.run("drop", episodes["at"], stdin="y\n").returncode == 0
    assert [each["at"] for each in desk.listed(offset)] == [thresholds["at"]]
    assert desk.json("drop", thresholds["at"], "--yes") == {"dropped": 1}
    assert desk.listed(offset) == []
    assert desk.listed(offset, "--handled")[0]["handled"] == "dropped"
    nothing = ("--all", "--reason", "no reason contains this", "--yes")
    assert desk.json("drop", *nothing, code=1) == {"dropped": 0}


def test_a_dead_letter_that_is_not_there(desk: Desk) -> None:
    desk.send(b"broken")
    ended = desk.run("show", "0:999999")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert (
        "there is no dead letter 0:999999; headstart.dead-letters holds 0:0 to 0:" in ended.stderr
    )
