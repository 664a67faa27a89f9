"""Many that ask at once: each is answered, Redis is asked once for each, and not accused."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import redis

from headstart.thresholds.cache_entries import CacheQuery
from headstart.thresholds.queries import CONNECTIONS, QueryClient, Reply, server_names
from headstart.thresholds.reader import AsyncThresholds, Thresholds
from headstart.thresholds.threshold import Threshold
from tests.client.redis_server import Server

BURST = 250
PATIENT = 5.0  # seconds: a loaded machine must not look like a slow Redis

integration = pytest.mark.integration


def contexts(tenant: str, *, same: bool) -> list[dict[str, object]]:
    return [
        {"tenant": tenant, "workflow_type": "refund", "user_id": "u" if same else f"u{number}"}
        for number in range(BURST)
    ]


def ask_in_threads(ask: Callable[[Any], Any], of: Sequence[Any]) -> list[Any]:
    """Return the answers to as many threads that ask at the same moment."""
    together = threading.Barrier(len(of))

    def one(asked: Any) -> Any:
        together.wait()
        return ask(asked)

    with ThreadPoolExecutor(len(of)) as pool:
        return list(pool.map(one, of))


async def in_tasks(reader: AsyncThresholds, asked: list[dict[str, object]]) -> list[Threshold]:
    return await asyncio.gather(*(reader.get(each) for each in asked))


@pytest.mark.usefixtures("modes_published")
@integration
@pytest.mark.parametrize("same", [True, False], ids=["same", "different"])
def test_every_task_of_a_burst_is_answered(
    redis_url: str, tenant: str, same: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def burst() -> None:
        async with AsyncThresholds(redis_url, timeout_s=PATIENT) as reader:
            answers = await in_tasks(reader, contexts(tenant, same=same))
            modes = await asyncio.gather(*(reader.mode(tenant, f"a{n}") for n in range(BURST)))
            assert Counter(answer.stale for answer in answers) == {False: BURST}
            assert set(modes) == {"act"}
            assert (reader.stats()["failed"], reader.stats()["stale"]) == (0, 0)

    asyncio.run(burst())
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.usefixtures("modes_published")
@integration
@pytest.mark.parametrize("same", [True, False], ids=["same", "different"])
def test_every_thread_of_a_burst_is_answered(
    redis_url: str, tenant: str, same: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with Thresholds(redis_url, timeout_s=PATIENT) as reader:
        answers = ask_in_threads(reader.get, contexts(tenant, same=same))
        modes = ask_in_threads(lambda number: reader.mode(tenant, f"a{number}"), range(BURST))
        assert Counter(answer.stale for answer in answers) == {False: BURST}
        assert set(modes) == {"act"}
        assert (reader.stats()["failed"], reader.stats()["stale"]) == (0, 0)
        assert len(reader._query_client._clients) <= CONNECTIONS
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@integration
def test_a_burst_on_a_warm_reader_is_answered(redis_url: str, tenant: str) -> None:
    async def bursts() -> None:
        async with AsyncThresholds(redis_url, timeout_s=PATIENT) as reader:
            await reader.get(workflow_type="refund", tenant=tenant)
            for number in range(3):
                asked = [{**each, "domain": number} for each in contexts(tenant, same=False)]
                assert not any(answer.stale for answer in await in_tasks(reader, asked))

    asyncio.run(bursts())


@integration
def test_concurrent_identical_queries_are_sent_once(server: Server) -> None:
    def calls() -> int:
        return int(server.client.info("commandstats").get("cmdstat_hmget", {}).get("calls", 0))

    async def burst() -> None:
        async with AsyncThresholds(server.url, timeout_s=PATIENT, staleness_s=30.0) as reader:
            await in_tasks(reader, contexts("default", same=True))
            assert reader.stats()["misses"] == 2 * BURST, "for the context, and for the default"

    asyncio.run(burst())
    assert 2 <= calls() <= 5, "and at most as often again by the follower, for modes too"


@integration
def test_replies_are_not_shared_if_nothing_may_be_stale(redis_url: str, tenant: str) -> None:
    async def burst() -> None:
        async with AsyncThresholds(redis_url, timeout_s=PATIENT, staleness_s=0.0) as reader:
            answers = await in_tasks(reader, contexts(tenant, same=True))
            assert not any(answer.stale for answer in answers)

    asyncio.run(burst())


@integration
def test_a_blocked_event_loop_is_not_a_timeout_of_redis(
    redis_url: str, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def stand_still() -> None:
        for _ in range(3):
            time.sleep(0.4)  # noqa: ASYNC251 - which is the fault
            await asyncio.sleep(0)

    async def ask() -> None:
        async with AsyncThresholds(redis_url, timeout_s=0.2) as reader:
            busy = asyncio.ensure_future(stand_still())
            assert not (await reader.get(workflow_type="refund", tenant=tenant)).stale
            await busy

    asyncio.run(ask())
    assert "does not answer" not in caplog.text


@integration
def test_a_task_that_gives_up_takes_no_answer_from_the_others(redis_url: str, tenant: str) -> None:
    async def ask() -> None:
        async with AsyncThresholds(redis_url, timeout_s=PATIENT) as reader:
            tasks = [
                asyncio.ensure_future(reader.get(each)) for each in contexts(tenant, same=True)
            ]
            await asyncio.sleep(0)
            tasks[0].cancel()
            await asyncio.wait(tasks)
            assert tasks[0].cancelled()
            assert not any(task.result().stale for task in tasks[1:])

    asyncio.run(ask())


@integration
def test_one_question_that_redis_refuses_does_not_spoil_the_others(
    redis_url: str, tenant: str
) -> None:
    from headstart.keys import redis_key

    with redis.Redis.from_url(redis_url) as client:
        client.set(redis_key(tenant, "odd"), "no hash", px=60_000)

    async def ask() -> None:
        async with AsyncThresholds(redis_url, timeout_s=PATIENT) as reader:
            odd, *others = await asyncio.gather(
                *(reader.get(tenant=tenant, workflow_type=name) for name in ("odd", "a", "b"))
            )
            assert odd.stale
            assert reader.stats()["misses"] >= len(others)

    asyncio.run(ask())


@integration
def test_a_reader_may_be_used_in_one_event_loop_after_the_other(
    redis_url: str, tenant: str
) -> None:
    reader = AsyncThresholds(redis_url, timeout_s=PATIENT)

    async def ask(name: str) -> Threshold:
        answer = await reader.get(workflow_type=name, tenant=tenant)
        await reader.close()
        return answer

    assert not any(asyncio.run(ask(name)).stale for name in ("a", "b"))


class Slow:
    """A client of redis-py whose Redis takes its time, or does not answer."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.seconds, self.error = seconds, error
        self.at_once = self.most_at_once = self.calls = 0

    def hmget(self, _key: str, fields: Sequence[str]) -> list[None]:
        self.calls += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep(self.seconds)
        self.at_once -= 1
        if self.error is not None:
            raise self.error
        return [None for _ in fields]


def asker_of(client: Slow) -> QueryClient:
    return QueryClient(
        lambda: client, clock=time.monotonic, staleness_s=1.0, timeout_s=0.02,
        server_of=server_names(None),
    )  # fmt: skip


def query(number: int) -> CacheQuery:
    return CacheQuery(("refund", "default", str(number)), None, "key", ("path", "!overrides"))


def test_waiting_for_a_connection_is_not_a_timeout() -> None:
    client = Slow(0.01)
    asker = asker_of(client)
    replies: list[Reply] = ask_in_threads(asker.ask, [query(n) for n in range(10 * CONNECTIONS)])
    assert all(reply.values == [None, None] for reply in replies)
    assert client.most_at_once <= CONNECTIONS


class Turns(threading.Semaphore):
    """The connections of an asker, and whether so many threads use one or wait for one."""

    def __init__(self, wanted: int) -> None:
        super().__init__(CONNECTIONS)
        self.wanted, self.all_wait = wanted, threading.Event()
        self.counting = threading.Lock()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        with self.counting:
            self.wanted -= 1
            if self.wanted == 0:
                self.all_wait.set()
        return super().acquire(blocking, timeout)


def test_queued_queries_are_not_sent_while_redis_fails() -> None:
    asked = [query(n) for n in range(10 * CONNECTIONS)]
    turns = Turns(len(asked))

    class Failing(Slow):
        def hmget(self, key: str, fields: Sequence[str]) -> list[None]:
            assert turns.all_wait.wait(60.0)
            return super().hmget(key, fields)

    client = Failing(error=redis.TimeoutError("no answer"))
    asker = asker_of(client)
    asker._slots, asker._wait_s = turns, 60.0
    replies: list[Reply] = ask_in_threads(asker.ask, asked)
    assert all(reply.values is None for reply in replies)
    assert len([reply for reply in replies if reply.error is not None]) == CONNECTIONS
    assert client.calls == CONNECTIONS


def test_a_question_is_asked_once_at_a_time() -> None:
    client = Slow(0.2)
    replies = ask_in_threads(asker_of(client).ask, [query(1) for _ in range(20)])
    assert client.calls < 20
    assert all(reply.values == [None, None] for reply in replies)


def test_an_interrupted_query_blocks_no_other_thread() -> None:
    client = Slow()
    asker = asker_of(client)
    client.error = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        asker.ask(query(1))
    client.error = None
    assert ask_in_threads(asker.ask, [query(1)])[0].values == [None, None]
