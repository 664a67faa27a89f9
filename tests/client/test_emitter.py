"""The emitter on a real broker and without one: nothing lost, order kept, no caller waits."""

from __future__ import annotations

import asyncio
import inspect
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

import headstart
from headstart import BufferFull, Emitter, InvalidEvent, NotDelivered
from headstart.events.schema import MAX_EVENT_BYTES
from headstart.keys import event_key
from headstart.spool.layout import SPOOL_FILE
from tests.client.broker_log import FIELDS, Log
from tests.patience import PATIENCE_S, until

SENDING = ("headstart-emit", "headstart-ship")
NOTHING_LOST = {"lost": 0, "dropped": 0, "scrubbed": 0}


@pytest.fixture(params=[True, False], ids=["durable", "memory"])
def make(request: pytest.FixtureRequest) -> Callable[..., Emitter]:
    """An emitter of either kind: callers must not see a difference."""
    return partial(Emitter, durable=request.param)


@pytest.fixture
def nowhere() -> Iterator[str]:
    """An address that takes connections and never answers, as a broker behind a bad network."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def closed_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


def sending_threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name in SENDING]


def counts(emitted: int, acknowledged: int = 0) -> dict[str, int]:
    waiting = emitted - acknowledged
    return {"emitted": emitted, "acknowledged": acknowledged, "waiting": waiting} | NOTHING_LOST


def give_up(emitter: Emitter) -> None:
    with pytest.raises(NotDelivered):
        emitter.close(timeout_s=0.0)


@pytest.mark.integration
def test_every_event_arrives_once_and_in_order_per_key_from_several_threads(
    log: Log, make: Callable[..., Emitter]
) -> None:
    with make(log.kafka) as emitter:

        def run(thread: int) -> list[str]:
            return [
                emitter.emit(FIELDS, tenant=log.tenant, workflow_type=f"flow-{thread}", n=n)
                for n in range(300)
            ]

        with ThreadPoolExecutor(4) as pool:
            ids = [name for names in pool.map(run, range(4)) for name in names]
    events = log.events()
    assert sorted(event["id"] for event in events) == sorted(ids)
    order = defaultdict(list)
    for event in events:
        order[event["workflow_type"]].append(event["n"])
    assert order == {f"flow-{thread}": list(range(300)) for thread in range(4)}


@pytest.mark.integration
def test_order_within_one_key_is_the_order_of_emission_across_threads(
    log: Log, make: Callable[..., Emitter]
) -> None:
    with make(log.kafka, linger_s=0.0) as emitter, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: emitter.emit(FIELDS, tenant=log.tenant, n=n), range(800)))
    events = log.events()
    assert {event["origin"][0] for event in events} == {emitter.spool_id}
    assert [event["origin"][1] for event in events] == list(range(800))
    assert sorted(event["n"] for event in events) == list(range(800))


@pytest.mark.integration
def test_a_frame_holds_one_key(log: Log, make: Callable[..., Emitter]) -> None:
    with make(log.kafka, linger_s=0.2) as emitter:
        for n in range(300):
            emitter.emit(FIELDS, tenant=log.tenant, workflow_type=f"flow-{n % 3}")
    frames = log.frames()
    for key, frame in frames:
        assert {event_key(event["tenant"], event["workflow_type"]) for event in frame} == {key}
    assert len(frames) < 300  # they were framed at all


@pytest.mark.integration
def test_from_asyncio(log: Log, make: Callable[..., Emitter]) -> None:
    async def run() -> list[str]:
        emitter = make(log.kafka)

        async def agent(name: int) -> list[str]:
            ids = []
            for n in range(50):
                ids.append(emitter.emit(FIELDS, tenant=log.tenant, agent_id=str(name), n=n))
                await asyncio.sleep(0)
            return ids

        ids = await asyncio.gather(*[agent(name) for name in range(4)])
        await asyncio.to_thread(emitter.flush, PATIENCE_S)
        assert emitter.stats() == counts(200, acknowledged=200)
        await asyncio.to_thread(emitter.close)
        return [name for names in ids for name in names]

    ids = asyncio.run(run())
    events = log.events()
    assert [event["id"] for event in sorted(events, key=lambda e: e["origin"][1])] == [
        event["id"] for event in events
    ]
    assert sorted(event["id"] for event in events) == sorted(ids)


@pytest.mark.integration
def test_flush_waits_for_the_broker_and_the_emitter_goes_on(
    log: Log, make: Callable[..., Emitter]
) -> None:
    with make(log.kafka) as emitter:
        emitter.flush(PATIENCE_S)  # nothing emitted: nothing to wait for
        first = emitter.emit(FIELDS, tenant=log.tenant)
        emitter.flush(PATIENCE_S)
        assert [event["id"] for event in log.events()] == [first]
        second = emitter.emit(FIELDS, tenant=log.tenant)
    assert [event["id"] for event in log.events()] == [first, second]


@pytest.mark.integration
def test_events_arrive_as_emitted(log: Log, make: Callable[..., Emitter]) -> None:
    given = {
        **FIELDS,
        "tenant": log.tenant,
        "confidence": 0.5,
        "mine": {"é": [1, None, "𝄞"]},
        "data": {"context": {"domain": "retail"}},
    }
    before = orjson.dumps(given)
    with make(log.kafka) as emitter:
        name = emitter.emit(given, user_id="u7")
    assert orjson.dumps(given) == before  # the caller's own is left alone
    (event,) = log.events()
    assert event.pop("id") == name
    assert event.pop("origin") == [emitter.spool_id, 0]
    assert isinstance(event.pop("timestamp"), int)
    assert event == {**given, "user_id": "u7"}


@pytest.mark.integration
def test_the_end_of_the_with_block_delivers_and_ends_the_thread(
    log: Log, make: Callable[..., Emitter]
) -> None:
    with make(log.kafka) as emitter:
        emitter.emit(FIELDS, tenant=log.tenant)
    assert emitter.stats()["waiting"] == 0
    until(lambda: not sending_threads())
    emitter.close()  # twice is harmless


@pytest.mark.integration
def test_an_event_of_the_largest_size_is_delivered_and_a_larger_one_refused(
    log: Log, make: Callable[..., Emitter]
) -> None:
    with make(log.kafka) as emitter:
        emitter.emit(FIELDS, tenant=log.tenant, mine="")
        emitter.flush(PATIENCE_S)
        room = MAX_EVENT_BYTES - len(orjson.dumps(log.events()[0]))
        with pytest.raises(InvalidEvent, match=f"has {MAX_EVENT_BYTES + 1} bytes, the limit is"):
            emitter.emit(FIELDS, tenant=log.tenant, mine="x" * (room + 1))
        emitter.emit(FIELDS, tenant=log.tenant, mine="x" * room)
        assert emitter.stats()["emitted"] == 2
    assert [len(event["mine"]) for event in log.events()] == [0, room]


def test_a_full_buffer_refuses_and_nothing_waits_for_the_network(nowhere: str) -> None:
    emitter = Emitter(nowhere, buffer=3, durable=False)
    outcome: list[BaseException] = []

    def run() -> None:
        for n in range(3):
            emitter.emit(FIELDS, n=n)
        try:
            emitter.emit(FIELDS, n=3)
        except BufferFull as error:
            outcome.append(error)

    caller = threading.Thread(target=run, daemon=True)
    caller.start()
    caller.join(PATIENCE_S)  # the address never answers: waiting for it would never end
    assert not caller.is_alive()
    assert nowhere in str(outcome[0])
    assert "3 events" in str(outcome[0])
    assert emitter.stats() == counts(3)
    give_up(emitter)


def test_flush_and_close_name_what_was_not_delivered(
    closed_port: str, make: Callable[..., Emitter]
) -> None:
    emitter = make(closed_port)
    emitter.emit(FIELDS)
    emitter.emit(FIELDS)
    with pytest.raises(NotDelivered, match=f"^2 events .* at {closed_port}; they wait in"):
        emitter.flush(timeout_s=0.1)
    assert emitter.stats()["waiting"] == 2
    with pytest.raises(NotDelivered, match=r"^2 events"):
        emitter.close(timeout_s=0.1)
    for thread in sending_threads():  # closed: it gives up
        thread.join(PATIENCE_S)
    assert not sending_threads()


def test_leaving_the_with_block_without_a_broker_raises(
    closed_port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = Emitter.flush
    monkeypatch.setattr(Emitter, "flush", lambda self, _timeout: flush(self, 0.1))
    with pytest.raises(NotDelivered), Emitter(closed_port) as emitter:
        emitter.emit(FIELDS)


@pytest.mark.parametrize(
    "kafka", ["", "broker:", ":9092", "broker:9092/", "[::1", "a:1,,b:2", "a:b"]
)
def test_an_invalid_address_is_refused(kafka: str) -> None:
    with pytest.raises(ValueError, match=r"host:port\[,host:port\]"):
        Emitter(kafka)


@pytest.mark.parametrize("kafka", ["broker", "10.0.0.1:9092", "[::1]:9092", "a:1, b:2"])
def test_a_valid_address_is_accepted(kafka: str) -> None:
    Emitter(kafka).close()


def test_emit_after_close_raises(closed_port: str) -> None:
    emitter = Emitter(closed_port)
    emitter.close()
    with pytest.raises(RuntimeError, match="closed"):
        emitter.emit(FIELDS)
    assert emitter.stats()["emitted"] == 0


def test_an_emitter_that_emits_nothing_starts_no_thread(
    closed_port: str, make: Callable[..., Emitter]
) -> None:
    before = {*sending_threads()}  # of an earlier test, which may be ending yet
    with make(closed_port):
        pass
    assert {*sending_threads()} <= before


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"workflow_id": None}, "workflow_id"),
        ({"confidence": 7}, "confidence"),
        ({"confidence": float("nan")}, "confidence"),
        ({"tenant": "a\x1fb"}, "tenant"),
        ({"tenant": "\ud800"}, "tenant"),
        ({"timestamp": 95_617_584_000_000}, "timestamp"),
        ({"timestamp": int(time.time())}, "timestamp"),
        ({"timestamp": time.time()}, "timestamp"),
        ({"timestamp": time.time_ns()}, "timestamp"),
        ({"timestamp": time.time_ns() // 1_000}, "timestamp"),
        ({"timestamp": datetime.now(UTC)}, "timestamp"),
        ({"data": {"prediction": {"mode": "x"}}}, "data.prediction.mode"),
        ({"id": "mine"}, "id"),
    ],
)
def test_a_refused_event_is_named_and_leaves_no_trace(
    closed_port: str, fields: dict[str, Any], field: str
) -> None:
    with Emitter(closed_port) as emitter:
        with pytest.raises(InvalidEvent) as caught:
            emitter.emit({**FIELDS, **fields})
        assert caught.value.field == field
        assert emitter.stats() == counts(0)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), "cannot be written as JSON: .+"),
        ({1, 2}, "cannot be written as JSON: .+"),
        (b"bytes", "cannot be written as JSON: .+"),
        (2**70, "mine: is an integer beyond 64 bits"),
    ],
)
def test_a_value_that_json_cannot_hold_is_refused(
    closed_port: str, value: object, reason: str
) -> None:
    with Emitter(closed_port) as emitter:
        with pytest.raises(InvalidEvent, match=reason):
            emitter.emit(FIELDS, mine=value)
        assert emitter.stats()["emitted"] == 0


@pytest.mark.integration
def test_a_refused_event_takes_no_position(log: Log, make: Callable[..., Emitter]) -> None:
    with make(log.kafka) as emitter:
        emitter.emit(FIELDS, tenant=log.tenant)
        with pytest.raises(InvalidEvent):
            emitter.emit(FIELDS, tenant=log.tenant, mine=object())
        emitter.emit(FIELDS, tenant=log.tenant, origin=["mine", 7])
    assert [event["origin"] for event in log.events()] == [
        [emitter.spool_id, 0],
        [emitter.spool_id, 1],
    ]


def test_client_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def described(client_id: str | None = None) -> str:
        emitter = Emitter("127.0.0.1:1", spool=tmp_path, shipper="none", client_id=client_id)
        emitter.emit(event_type="task_complete", workflow_type="w", workflow_id="w")
        spool = tmp_path / emitter.spool_id / SPOOL_FILE
        stored_id: str = orjson.loads(spool.read_bytes())["client_id"]
        with pytest.raises(NotDelivered):
            emitter.close(0.0)
        return stored_id

    assert described() == "headstart"
    monkeypatch.setenv("HEADSTART_CLIENT_ID", "acme")
    assert described() == "acme"
    assert described("acme-eu") == "acme-eu"
    with pytest.raises(ValueError, match="client_id must be"):
        described("acme eu")


@pytest.mark.parametrize("kafka", [None, 9092, b"a:1", ["a:1"], "kafka://a:1", "a:0", "a:70000"])
def test_an_address_of_a_wrong_form_is_named(kafka: Any) -> None:
    with pytest.raises(ValueError, match=r"^kafka: .* is no address; give host:port"):
        Emitter(kafka)


@pytest.mark.parametrize(
    ("option", "nearest"),
    [
        ("lingers", "linger_s"),
        ("onfull", "on_full"),
        ("clientid", "client_id"),
        ("scrubs", "scrub"),
    ],
)
def test_an_option_that_there_is_not_is_named_with_the_nearest(option: str, nearest: str) -> None:
    with pytest.raises(TypeError, match=rf"Emitter\(\) has no argument '{option}'.*'{nearest}'"):
        Emitter("127.0.0.1:1", **{option: 1})
    with pytest.raises(TypeError, match="it has buffer, client_id"):
        Emitter("127.0.0.1:1", xyz=1)


@pytest.mark.parametrize(
    "options",
    [
        {"topic": ""},
        {"topic": None},
        {"linger_s": "fast"},
        {"linger_s": -1.0},
        {"buffer": 0},
        {"spool": ""},
        {"spool": 7},
        {"on_full": "drop"},
        {"on_full": "drop", "durable": False},
        {"shipper": "me"},
        {"compression": "gzip"},
        {"scrub": "sometimes"},
        {"client_id": 5},
    ],
    ids=str,
)
def test_an_option_that_means_nothing_is_named(options: dict[str, Any]) -> None:
    name = next(iter(options))
    with pytest.raises(ValueError, match=f"^{name}"):
        Emitter("127.0.0.1:1", **options)


@pytest.mark.integration
def test_async_code_flushes_and_closes(
    kafka: str, topics: None, tenant: str, make: Callable[..., Emitter]
) -> None:
    async def emit() -> dict[str, int]:
        async with make(kafka) as emitter:
            for _ in range(10):
                emitter.emit({**FIELDS, "tenant": tenant})
            await emitter.aflush(PATIENCE_S)
            await emitter.aclose()
            with pytest.raises(RuntimeError, match="closed"):
                emitter.emit({**FIELDS, "tenant": tenant})
        return emitter.stats()

    assert asyncio.run(emit()) == counts(10, 10)


async def turns_while(work: Coroutine[Any, Any, None]) -> int:
    """Return how often the event loop turns while some work fails for want of a broker."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    counting = asyncio.ensure_future(count())
    with pytest.raises(NotDelivered, match=r"^1 events .* they wait in"):
        await work
    counting.cancel()
    return turns


def test_async_code_is_not_blocked_without_a_broker(
    closed_port: str, make: Callable[..., Emitter]
) -> None:
    async def emit() -> None:
        emitter = make(closed_port)
        emitter.emit(FIELDS)
        assert await turns_while(emitter.aflush(0.5)) >= 5
        assert await turns_while(emitter.aclose(0.5)) >= 5
        await emitter.aclose(0.5)  # twice is harmless

    asyncio.run(emit())


def test_a_close_that_is_cancelled_closes(closed_port: str, make: Callable[..., Emitter]) -> None:
    async def emit() -> None:
        emitter = make(closed_port)
        emitter.emit(FIELDS)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await emitter.aclose(60.0)
        with pytest.raises(RuntimeError, match="closed"):
            emitter.emit(FIELDS)

    begun = time.monotonic()
    asyncio.run(emit())
    assert time.monotonic() - begun < 30.0


def test_a_flush_that_blocks_an_event_loop_is_warned_of(
    closed_port: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def emit() -> None:
        emitter = Emitter(closed_port)
        emitter.emit(FIELDS)
        with pytest.raises(NotDelivered):
            emitter.flush(1.0)
        await emitter.aclose(0.0)

    with pytest.raises(NotDelivered):
        asyncio.run(emit())
    assert "blocked the event loop" in caplog.text


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("user", "user_id"), ("tenant_id", "tenant"), ("tennant", "tenant"), ("tool", "tool_id"),
        ("workflow_name", "workflow_type"), ("userId", "user_id"), ("sucess", "success"),
        ("confidance", "confidence"), ("timestmp", "timestamp"), ("event_typ", "event_type"),
    ],
)  # fmt: skip
def test_a_keyword_that_no_field_is_called_is_named(given: str, meant: str) -> None:
    with Emitter("127.0.0.1:1") as emitter:
        with pytest.raises(TypeError, match=rf"'{given}'; did you mean '{meant}'"):
            emitter.emit(**FIELDS, **{given: "x"})
        assert emitter.stats() == counts(0)


CONSTRUCTORS: Final = (
    headstart.speculation_start, headstart.task_complete, headstart.ail_decision,
    headstart.hil_decision, headstart.workflow_complete, headstart.user_feedback,
)  # fmt: skip


def content_of_constructors() -> set[str]:
    named = {name for each in CONSTRUCTORS for name in inspect.signature(each).parameters}
    return named - {"common", "tool_id", "success", "confidence"}


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            *content_of_constructors(), "context", "prediction", "result", "gain", "cost",
            "execution_time", "was_corect", "outcom", "speculatd", "acepted",
        }
    ),
)  # fmt: skip
def test_a_keyword_that_belongs_into_data_is_named(name: str) -> None:
    with Emitter("127.0.0.1:1") as emitter:
        with pytest.raises(TypeError, match=rf"'{name}'.*data=\{{"):
            emitter.emit(**FIELDS, **{name: "x"})
        assert emitter.stats() == counts(0)


def test_a_keyword_of_the_callers_own_is_stored() -> None:
    emitter = Emitter("127.0.0.1:1")
    emitter.emit(**FIELDS, n=1, customer_id="c7", version_id="v", latency_ms=4, results=[])
    with pytest.raises(NotDelivered):
        emitter.close(0.0)


@pytest.mark.parametrize("name", ["workflow_type", "workflow_id", "user_id", "tenant"])
def test_a_number_for_an_id_is_named_with_the_fix(name: str) -> None:
    with (
        Emitter("127.0.0.1:1") as emitter,
        pytest.raises(InvalidEvent, match=rf"^{name}: must be a string, not a number; give str"),
    ):
        emitter.emit({**FIELDS, name: 7})


@pytest.mark.parametrize("event", ["text", 7, [1]])
def test_an_invalid_event_is_named(event: Any) -> None:
    with (
        Emitter("127.0.0.1:1") as emitter,
        pytest.raises(InvalidEvent, match=r"^an event is a mapping, not"),
    ):
        emitter.emit(event)
