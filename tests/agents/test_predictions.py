"""The worker of shared models: whatever happens, its state is that of one pass over the log."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.config import WorkerConfig
from agents.predictions.model_files import ModelFileDamaged, ModelFiles
from agents.predictions.owned_models import ModelTooNew
from headstart.events.schema import MAX_IDENTIFIER
from headstart.keys import event_key
from headstart.prediction.shared import covered_sequences
from headstart.prediction.shared.decision_events import value_event
from headstart.prediction.shared.fleet_model import FleetModel
from headstart.prediction.stable_hash import salted_hash
from processing.predictions.entries import LoadedModels
from processing.predictions.partition_models import PartitionModels
from processing.records.batch import RecordBatch
from tests.agents.prediction_world import EPOCH, Topics, Worker, frames, replayed, taught
from topics.models.records import (
    FORMAT,
    MARKER_KEY,
    NO_RESET,
    NewerModel,
    StoredModel,
    decode_marker,
)
from topics.models.resets import RESET

TENANTS = ("acme", "blue", "coral")
EVENTS = [event for some in zip(*map(taught, TENANTS), strict=True) for event in some]
LOG = frames(EVENTS, 2)


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(work())


def expect_exact(worker: Worker, log: list[bytes]) -> None:
    for tenant in TENANTS:
        assert worker.state(tenant) == replayed(log, tenant).to_bytes()


def test_a_worker_that_is_killed_goes_on_to_the_bit(worker_config: WorkerConfig) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        for end in (3, 7, 7, 12, len(LOG)):
            worker = Worker(topics, worker_config)
            begun = await worker.start()
            assert begun <= max(0, end)
            await worker.feed(end)
            if end == 7:
                await worker.store()
            if end < len(LOG):
                await worker.kill()
        assert begun == 7
        expect_exact(worker, LOG)
        await worker.agent.close()  # writes the states
        for tenant in TENANTS:
            assert topics.stored(tenant).state == replayed(LOG, tenant).to_bytes()
        again = Worker(topics, worker_config)
        assert await again.start() == len(LOG)
        expect_exact(again, LOG)
        await again.kill()

    run(work)


def test_a_stale_owner_loses_nothing(worker_config: WorkerConfig) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        stale = Worker(topics, worker_config)
        await stale.start()
        await stale.feed(6)  # and then it is suspended
        owner = Worker(topics, replace(worker_config, data=worker_config.data / "b"))
        await owner.start()
        await owner.feed(12)
        await owner.store()
        newest = topics.stored("acme")
        await stale.store()
        assert topics.stored("acme").version < newest.version
        await owner.kill()
        topics.compacted = len(topics.models)
        third = Worker(topics, replace(worker_config, data=worker_config.data / "c"))
        assert await third.start() <= 6
        await third.feed(len(LOG))
        expect_exact(third, LOG)
        await third.kill()
        await stale.kill()

    run(work)


def test_the_owner_replaces_what_a_stale_one_wrote(worker_config: WorkerConfig) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        stale = Worker(topics, worker_config)
        await stale.start()
        await stale.feed(6)
        owner = Worker(topics, replace(worker_config, data=worker_config.data / "b"))
        await owner.start()
        await owner.feed(12)
        await owner.store()
        newest = topics.stored("blue")
        await stale.store()
        await owner.feed(13)
        await owner.store()  # sees that its offsets do not follow
        await owner.store()
        assert topics.stored("blue").version >= newest.version
        await owner.kill()
        await stale.kill()

    run(work)


@given(
    st.booleans(),
    st.lists(
        st.tuples(
            st.sampled_from(["feed", "store", "file", "kill", "stale", "compact"]),
            st.integers(1, 4),
        ),
        max_size=12,
    ),
)
def test_any_order_of_faults_gives_the_state_of_the_log(
    tmp_path_factory: pytest.TempPathFactory, volatile: bool, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("world")

    async def work() -> None:
        topics = Topics([*LOG])
        config = _config(folder)
        epoch = msgspec.structs.replace(EPOCH, volatile=volatile)
        worker, stale, life = Worker(topics, config, epoch), None, 0
        await worker.start()
        for what, count in steps:
            if what == "feed":
                await worker.feed(min(len(LOG), worker.position + count))
            elif what == "store":
                await worker.store()
            elif what == "file" and volatile:
                await worker.file()
            elif what == "compact":
                topics.compacted = len(topics.models)
            elif what == "stale" and stale is not None:
                await stale.store()
            elif what == "kill":
                if stale is not None:
                    await stale.kill()
                stale, life = worker, life + 1
                other = replace(config, data=folder / f"life{life % count}")
                worker = Worker(topics, other, epoch)
                await worker.start()
        await worker.feed(len(LOG))
        expect_exact(worker, LOG)
        await worker.kill()
        if stale is not None:
            await stale.kill()

    run(work)


def test_a_step_is_finished_before_its_models_are_stored(
    worker_config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        worker = Worker(topics, worker_config)
        await worker.start()
        agent, began, go_on = worker.agent, threading.Event(), threading.Event()
        (owned,) = agent._owned.values()
        apply = owned.models._apply_event

        def slow(*args: Any) -> int:
            changed = apply(*args)
            began.set()
            go_on.wait(60.0)
            return changed

        monkeypatch.setattr(owned.models, "_apply_event", slow)
        fed = asyncio.create_task(worker.feed(5))
        await asyncio.to_thread(began.wait, 60.0)
        assert agent._intake._queue is not None
        agent._intake._queue._task.cancel()  # as closing does after some seconds
        await asyncio.sleep(0.05)
        assert agent._lock.locked()
        go_on.set()
        await agent.drain()
        for tenant in TENANTS:
            assert topics.stored(tenant).state == replayed(LOG[:5], tenant).to_bytes()
        fed.cancel()
        await worker.kill()

    run(work)


def test_a_step_broken_off_before_its_dead_letters_is_applied_again(
    worker_config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        topics = Topics([*LOG[:3], b"no json"])
        worker = Worker(topics, worker_config)
        await worker.start()
        agent, sending = worker.agent, asyncio.Event()

        async def stuck(_letters: object) -> None:
            sending.set()
            await asyncio.Event().wait()

        monkeypatch.setattr(agent._producer, "send_dead_letters", stuck)
        fed = asyncio.create_task(worker.feed(4))
        await sending.wait()
        assert agent._intake._queue is not None
        agent._intake._queue._task.cancel()
        await asyncio.sleep(0)
        await agent.drain()
        assert not topics.models
        fed.cancel()
        await worker.kill()
        again = Worker(topics, worker_config)
        await again.start()
        await again.feed(4)
        assert len(topics.letters) == 1
        await again.kill()

    run(work)


def test_a_value_without_a_model_makes_none() -> None:
    identity = salted_hash("full", b"")
    event = value_event(5, "constant", identity, '"full"', b"")
    values = frames([{**event, "tenant": "acme", "workflow_type": f"t{n}"} for n in range(3)])
    models = PartitionModels(0, 1, 7, lambda _entry: FleetModel(), LoadedModels())
    batch = RecordBatch("topic", 0, 0, 3, [*range(3)], [0] * 3, [None] * 3, [*values])
    step = models.apply(batch, 0)
    assert (step.end, step.changed, step.dead_letters, models.entries) == (3, {}, [], {})


def test_a_step_ends_after_some_events() -> None:
    frame = b"[" + b",".join([b"7"] * 600) + b"]"
    models = PartitionModels(0, 1, 7, lambda _entry: FleetModel(), LoadedModels())
    batch = RecordBatch("topic", 0, 0, 4, [*range(4)], [0] * 4, [None] * 4, [frame] * 4)
    assert models.apply(batch, 0).end == 2
    assert models.reached == 2


def test_models_that_do_not_fit_into_memory_are_read_again(worker_config: WorkerConfig) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        worker = Worker(topics, worker_config)
        worker.agent._loaded._most = 1
        await worker.start()
        await worker.feed(len(LOG))
        (owned,) = worker.agent._owned.values()
        assert sum(each.model is not None for each in owned.models.entries.values()) == 1
        expect_exact(worker, LOG)
        await worker.kill()

    run(work)


def test_repeats_change_nothing(worker_config: WorkerConfig) -> None:
    async def work() -> None:
        topics = Topics([*LOG, *LOG])
        worker = Worker(topics, worker_config)
        await worker.start()
        await worker.feed(len(topics.log))
        expect_exact(worker, LOG)
        assert not topics.letters
        await worker.kill()

    run(work)


def test_refused_records_are_dead_letters_and_the_rest_is_learned(
    worker_config: WorkerConfig,
) -> None:
    good, (first, *_) = frames(EVENTS[:2]), EVENTS
    other_key = {**first, "content": {**first["content"], "check": "h" + "0" * 15}}
    bad: list[tuple[bytes, str]] = [
        (b"", "no value"),
        (b"no json", "not JSON"),
        (b"[1, 2", "not JSON"),
        (b"[7]", "an event is a JSON object"),
        (orjson.dumps({**first, "tenant": "a\x1fb"}), "tenant"),
        (orjson.dumps({**first, "workflow_type": 7}), "workflow_type"),
        (orjson.dumps({**first, "event_type": "task_complete"}), "event_type"),
        (orjson.dumps(other_key), "hash_key"),
        (orjson.dumps({**first, "content": {**first["content"], "sequence": -1}}), "sequence"),
        (orjson.dumps({**first, "content": {**first["content"], "record": "!"}}), "record"),
    ]

    async def work() -> None:
        topics = Topics([*good, *(value for value, _ in bad), *LOG])
        worker = Worker(topics, worker_config)
        await worker.start()
        await worker.feed(len(topics.log))
        expect_exact(worker, [*good, *LOG])
        reasons = [letter.reason for letter in topics.letters]
        assert len(reasons) == len(bad), reasons
        for reason, (_, words) in zip(reasons, bad, strict=True):
            assert words in reason
        assert all(dict(each.headers)["headstart.group"] == b"headstart-predictions"
                   for each in topics.letters)  # fmt: skip
        await worker.agent.close()
        again = Worker(topics, worker_config)
        assert await again.start() == len(topics.log)
        await again.kill()

    run(work)


def reset(tenant: str) -> bytes:
    return orjson.dumps([{"event_type": RESET, "tenant": tenant, "workflow_type": "refund"}])


def test_a_reset_takes_effect_at_its_offset(worker_config: WorkerConfig) -> None:
    after = frames([each for each in taught("acme") if each["event_type"] == "call_decision"])

    async def work() -> None:
        topics = Topics([*LOG, reset("acme"), *after])
        worker = Worker(topics, worker_config)
        await worker.start()
        await worker.feed(len(LOG) + 1)
        assert worker.state("acme") == b""
        assert worker.state("blue") == replayed(LOG, "blue").to_bytes()
        await worker.agent.close()
        stored = topics.stored("acme")
        assert (stored.state, stored.reset) == (b"", (EPOCH.number, len(LOG)))
        worker = Worker(topics, worker_config)
        await worker.start()
        await worker.feed(len(topics.log))
        assert worker.state("acme") == replayed(after, "acme").to_bytes()
        await worker.kill()

    run(work)


def test_with_an_operators_key_a_reset_must_be_signed(worker_config: WorkerConfig) -> None:
    rules = replace(worker_config.rules, operators_key=b"operators")

    async def work() -> None:
        topics = Topics([*LOG, reset("acme")])
        worker = Worker(topics, replace(worker_config, rules=rules))
        await worker.start()
        await worker.feed(len(topics.log))
        assert [letter.reason for letter in topics.letters] == [
            "the reset is not signed, and HEADSTART_OPERATORS_KEY is set"
        ]
        expect_exact(worker, LOG)
        await worker.kill()

    run(work)


@pytest.mark.parametrize("volatile", [False, True])
def test_a_new_log_begins_with_what_was_learned_from_one_in_memory(
    worker_config: WorkerConfig, volatile: bool
) -> None:
    first, second = (msgspec.structs.replace(EPOCH, number=n, volatile=volatile) for n in (7, 8))

    async def work() -> None:
        worker = Worker(Topics([*LOG[:9]]), worker_config, first)
        await worker.start()
        await worker.feed(9)
        await worker.agent.close()
        assert worker.consumer.committed == 9
        topics = Topics([*LOG[9:]])
        worker = Worker(topics, worker_config, second)
        assert await worker.start() == 0
        await worker.feed(len(topics.log))
        # A log on disk is only recreated by an operator, who deletes what was learned with it.
        expect_exact(worker, LOG if volatile else LOG[9:])
        await worker.kill()

    run(work)


def test_the_files_alone_restore_what_a_log_in_memory_had(worker_config: WorkerConfig) -> None:
    epoch = msgspec.structs.replace(EPOCH, volatile=True)

    async def work() -> None:
        topics = Topics([*LOG])
        worker = Worker(topics, worker_config, epoch)
        await worker.start()
        await worker.feed(9)
        assert worker.consumer.committed < 9
        await worker.file()
        assert worker.consumer.committed == 9
        await worker.feed(12)
        await worker.kill()
        worker = Worker(topics, worker_config, epoch)
        assert await worker.start() == 9
        await worker.feed(len(LOG))
        expect_exact(worker, LOG)
        await worker.kill()

    run(work)


@pytest.mark.parametrize("cut", [False, True])
def test_a_damaged_file_ends_the_worker_and_is_restored(
    worker_config: WorkerConfig, cut: bool
) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        worker = Worker(topics, worker_config)
        worker.agent._loaded._most = 1
        await worker.start()
        await worker.feed(len(LOG) - 1)
        await worker.kill()
        for path in worker_config.data.glob("models/0/*.model"):
            path.write_bytes(path.read_bytes()[:-1] + (b"" if cut else b"?"))
        for _ in (*TENANTS, "once more"):
            worker = Worker(topics, worker_config)
            await worker.start()
            with suppress(ModelFileDamaged):
                await worker.feed(len(LOG))
                expect_exact(worker, LOG)
                break
            await worker.kill()
        else:
            pytest.fail("it was not restored")
        await worker.kill()

    run(work)


def test_evicted_executors_are_counted(
    worker_config: WorkerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(covered_sequences, "MOST_EXECUTORS", 16)
    (first, *_), others = taught("acme"), []
    for number in range(17):
        content = {**first["content"], "executor": f"e{number:016x}"}
        others.append({**first, "content": content})

    async def work() -> None:
        topics = Topics(frames([first, *others]))
        worker = Worker(topics, worker_config)
        await worker.start()
        await worker.feed(len(topics.log), 1)
        assert worker.agent.counts.evicted_executors == 2
        await worker.kill()

    run(work)


def stored(tenant: str, state: bytes, format: int = FORMAT) -> tuple[bytes, bytes]:
    """A record of `headstart.models` after the first line of the log."""
    model = StoredModel(format, EPOCH.number, 0, NO_RESET, state)
    return event_key(tenant, "refund"), msgspec.msgpack.encode(model)


def test_a_damaged_state_stops_no_other_model(worker_config: WorkerConfig) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        topics.models.append(stored("acme", b"headstart-fleet-model 1\n?"))
        worker = Worker(topics, worker_config)
        await worker.start()
        await worker.feed(len(LOG))
        for tenant in ("blue", "coral"):
            assert worker.state(tenant) == replayed(LOG, tenant).to_bytes()
        assert worker.state("acme") == replayed(LOG[1:], "acme").to_bytes()
        await worker.kill()

    run(work)


def test_a_state_of_a_newer_worker_ends_the_worker_with_what_to_do(
    worker_config: WorkerConfig,
) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        topics.models.append(stored("acme", b"headstart-fleet-model 2\n?"))
        worker = Worker(topics, worker_config)
        await worker.start()
        with pytest.raises(ModelTooNew, match=r"refund of tenant acme.*upgrade this worker"):
            await worker.feed(len(LOG))
        await worker.kill()
        topics.models.append(stored("acme", b"", FORMAT + 1))
        with pytest.raises(NewerModel, match="upgrade"):
            await Worker(topics, worker_config).start()
        topics.models.clear()
        (path,) = worker_config.data.glob("models/0/*.model")
        path.write_bytes(b"hsmodel3" + path.read_bytes()[8:])
        with pytest.raises(NewerModel, match="upgrade"):
            await Worker(topics, worker_config).start()
        assert path.exists()

    run(work)


def test_the_heads_of_files_are_read_without_their_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, key = ModelFiles(tmp_path), event_key(*["\U0001f600" * MAX_IDENTIFIER] * 2)
    model = StoredModel(FORMAT, 2**63 - 1, 5, (7, 2**63 - 1), b"state" * 100_000)
    files.write(0, key, model)
    assert files.read(0, key) == model
    monkeypatch.setattr(Path, "read_bytes", lambda _path: pytest.fail("it was read whole"))
    assert files.heads(0) == {key: msgspec.structs.replace(model, state=b"")}


def test_the_marker_names_the_states_that_the_topic_has(worker_config: WorkerConfig) -> None:
    async def work() -> None:
        topics = Topics([*LOG])
        worker = Worker(topics, worker_config)
        await worker.start()
        await worker.feed(len(LOG))
        await worker.store()
        marker = decode_marker([value for key, value in topics.models if key == MARKER_KEY][-1])
        assert marker is not None
        assert marker.reached == len(LOG)
        assert set(marker.offsets) == {event_key(tenant, "refund") for tenant in TENANTS}
        await worker.kill()

    run(work)


def test_the_model_used_longest_ago_leaves_memory_first() -> None:
    from processing.predictions.entries import ModelEntry

    loaded = LoadedModels(2)
    entries = [ModelEntry(b"%d" % number, 0, model=FleetModel()) for number in range(3)]
    for entry in (*entries, entries[0]):
        loaded.used(entry)
    assert [each.key for each in loaded.excess()] == [b"1"]
    assert [each.model is None for each in entries] == [False, True, False]


def _config(folder: Any) -> WorkerConfig:
    from learners.registry import policy
    from processing.config import LearningConfig

    return WorkerConfig(
        kafka="127.0.0.1:1", postgres="", redis="redis://127.0.0.1:1/0", data=folder / "first",
        rules=LearningConfig(policy("td")), instance="0",
    )  # fmt: skip
