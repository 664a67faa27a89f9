"""`headstart predict verify`: what it compares, and what it finds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import orjson
import pytest

from cli.prediction.models import stored_size
from headstart.keys import event_key
from headstart.prediction.interface import ToolCall
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.shared.shared_predictor import SharedCallPredictor
from processing.records.batch import RecordBatch
from replay.models import verify
from replay.models.comparison import DIFFERENT, EQUAL, UNCHECKED, ModelComparison
from sinks.redis.models import ServedModel
from topics.epoch import Epoch
from topics.kafka.topic_states import TopicState
from topics.models.log import FoundModel
from topics.models.records import FORMAT, NO_RESET, StoredModel
from topics.models.resets import reset_record

EPOCH, NOW = Epoch(1_800_000_000, 1), 1_795_713_500_000
KEY = event_key("acme", "refund")


def _log() -> list[bytes]:
    events: list[bytes] = []
    names = {"tenant": "acme", "workflow_type": "refund"}
    predictor = SharedCallPredictor(
        lambda event: events.append(orjson.dumps([{**event, **names}])), hash_key=b"k" * 16
    )
    for number in range(6):
        run = predictor.run(user_id=f"u{number}")
        run.user(f"order W{number}")
        run.calls([ToolCall("find", {"order": f"W{number}"})])
    return events


LOG = _log()


def model(count: int, base: FleetModel | None = None) -> FleetModel:
    """What the first records of the log teach."""
    learned = base or FleetModel()
    for value in LOG[:count]:
        learned.apply(orjson.loads(value)[0])
    return learned


def stored(offset: int, state: bytes, epoch: int = EPOCH.number) -> FoundModel:
    return FoundModel(KEY, 0, NOW, StoredModel(FORMAT, epoch, offset, NO_RESET, state), len(state))


def served(offset: int, snapshot: bytes, epoch: int = EPOCH.number) -> ServedModel:
    return ServedModel("acme", "refund", epoch, offset, NOW, snapshot, len(snapshot))


def compared(
    monkeypatch: pytest.MonkeyPatch,
    states: Sequence[FoundModel],
    snapshot: ServedModel | None,
    begin: int = 0,
) -> ModelComparison:
    async def batches(
        _kafka: str, _partition: int, first: int, cuts: Sequence[int]
    ) -> AsyncIterator[RecordBatch]:
        for cut in cuts:
            values = LOG[first:cut]
            count = len(values)
            yield RecordBatch(
                "headstart.decisions", 0, first, cut, [*range(first, cut)], [NOW] * count,
                [None] * count, [*values],
            )  # fmt: skip
            first = cut

    monkeypatch.setattr(verify, "_batches", batches)
    log = TopicState("headstart.decisions", 1, {0: begin}, {0: len(LOG)})
    replay = verify._PartitionReplay(0, EPOCH, None, log)
    replay.plan(KEY, states, snapshot)
    asyncio.run(replay.run(""))
    return replay.comparisons[KEY]


def test_state_and_snapshot_are_those_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [stored(1, model(2).to_bytes()), stored(3, model(4).to_bytes())]
    found = compared(monkeypatch, states, served(5, model(6).snapshot()))
    assert (found.stored, found.served, found.ok, found.events) == (EQUAL, EQUAL, True, 6)
    assert found.why == []


def test_a_difference_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = model(3).to_bytes()
    found = compared(monkeypatch, [stored(3, wrong)], served(3, model(4).snapshot()))
    assert (found.stored, found.served, found.ok) == (DIFFERENT, EQUAL, False)
    found = compared(monkeypatch, [stored(3, b"damaged")], None)
    assert (found.stored, found.served) == (DIFFERENT, UNCHECKED)
    found = compared(monkeypatch, [], served(3, model(3).snapshot()))
    assert (found.stored, found.served, found.ok) == (UNCHECKED, DIFFERENT, False)


def test_where_the_log_is_cut_the_oldest_state_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    states = [stored(1, model(2).to_bytes()), stored(3, model(4).to_bytes())]
    found = compared(monkeypatch, states, served(4, model(5).snapshot()), begin=2)
    assert (found.stored, found.served) == (EQUAL, EQUAL)
    found = compared(monkeypatch, states[1:], None, begin=2)
    assert (found.stored, found.served, found.ok) == (UNCHECKED, UNCHECKED, True)
    assert "the log does not have" in " ".join(found.why)
    found = compared(monkeypatch, states[:1], None, begin=4)
    assert (found.stored, found.ok) == (UNCHECKED, True)


def test_a_state_that_cannot_be_read_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = stored(-1, b"headstart-fleet-model 1\n?")
    found = compared(monkeypatch, [damaged], served(5, model(6).snapshot()))
    assert (found.stored, found.served, found.ok) == (DIFFERENT, UNCHECKED, False)
    assert "damaged" in found.why[0]
    good = stored(3, model(4).to_bytes())
    found = compared(monkeypatch, [damaged, good], served(5, model(6).snapshot()))
    assert (found.served, found.ok) == (EQUAL, True)


def test_a_log_that_began_with_a_state_is_replayed_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = model(3).to_bytes()
    after = model(6, FleetModel.from_bytes(before)).to_bytes()
    found = compared(monkeypatch, [stored(-1, before), stored(5, after)], None)
    assert found.stored == EQUAL


def test_the_events_are_those_of_the_newest_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = model(4).to_bytes(), FleetModel()
    reset = reset_record(
        "acme", "refund", id="r", at_ms=NOW, partitions=1, operators_key=None
    ).value  # fmt: skip
    for value in LOG[4:]:
        after.apply(orjson.loads(value)[0])
    monkeypatch.setitem(globals(), "LOG", [*LOG[:4], reset, *LOG[4:]])
    found = compared(monkeypatch, [stored(3, before)], served(6, after.snapshot()))
    assert (found.stored, found.served, found.offset, found.events) == (EQUAL, EQUAL, 6, 2)


@pytest.mark.parametrize(
    ("snapshot", "state", "cell"),
    [(3, 3, "1,200"), (3, 5, "1,200"), (5, 3, "1,200 (at 7:3)"), (None, 3, "1,200"), (3, None, "")],
)
def test_a_state_older_than_the_snapshot_is_listed_with_its_version(
    snapshot: int | None, state: int | None, cell: str
) -> None:
    fields = {
        "epoch": None if snapshot is None else 7, "offset": snapshot,
        "state_epoch": None if state is None else 7, "state_offset": state,
        "state_bytes": None if state is None else 1_200, "state_ahead": False,
    }  # fmt: skip
    assert stored_size(fields) == cell


@pytest.mark.parametrize(
    ("epoch", "offset"),
    [
        (EPOCH.number, len(LOG)), (EPOCH.number, 2**62), (EPOCH.number, 2**63 - 1),
        (EPOCH.number + 1, 0), (9_999_999_999, 5),
    ],
)  # fmt: skip
def test_what_is_later_than_the_log_is_a_difference(
    monkeypatch: pytest.MonkeyPatch, epoch: int, offset: int
) -> None:
    """It is found without a replay up to that offset, which would never end."""
    good, forged = stored(3, model(4).to_bytes()), stored(offset, model(4).to_bytes(), epoch)
    snapshot = served(offset, model(6).snapshot(), epoch)
    found = compared(monkeypatch, [good, forged], snapshot)
    assert (found.stored, found.served, found.ok) == (DIFFERENT, DIFFERENT, False)
    assert all(f"version {epoch}:{offset}, which is later" in why for why in found.why)
    assert "restart the worker" in found.why[0]
    assert "`headstart predict reset refund --tenant acme`" in found.why[1]
    for begin in (0, 3):
        found = compared(monkeypatch, [forged], served(5, model(6).snapshot()), begin)
        assert (found.stored, found.ok) == (DIFFERENT, False)
    assert not compared(monkeypatch, [], snapshot).ok
    found = compared(monkeypatch, [forged, good], served(5, model(6).snapshot()))
    assert (found.stored, found.served) == (EQUAL, EQUAL)  # superseded: compaction removes it


def test_a_snapshot_of_an_earlier_log_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    good = stored(3, model(4).to_bytes())
    found = compared(monkeypatch, [good], served(5, model(6).snapshot(), EPOCH.number - 1))
    assert (found.stored, found.served, found.ok) == (EQUAL, DIFFERENT, False)
    assert "start the worker predictions" in found.why[0]
