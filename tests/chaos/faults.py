"""What goes wrong: each fault by name, done to a running world, over within its time."""

from __future__ import annotations

import asyncio
import random

from aiokafka import AIOKafkaProducer
from redis import Redis

from tests.chaos.cluster_faults import CLUSTER_FAULTS, KILLED_BROKERS, Fault
from tests.chaos.world import EXECUTORS, World, stopped
from topics.catalogue import EVENTS

SESSION_S = 10.0
"""Session timeout of the workers' groups."""
POISON = [b"not JSON", b"{}", b'{"event_type":"task_complete"}', b"\xff\xfe", b"[[]]", b"[1,2"]


def one_worker(world: World, draw: random.Random) -> None:
    world.kill_worker(draw.choice(sorted(world.workers)))


def one_threshold_worker(world: World, draw: random.Random) -> None:
    world.kill_worker(f"thresholds-{draw.randrange(2)}")


def all_workers(world: World, draw: random.Random) -> None:
    for name in world.workers:
        world.kill_worker(name)


def wiped_worker(world: World, draw: random.Random) -> None:
    world.kill_worker(f"thresholds-{draw.randrange(2)}", wipe=True)


def all_wiped(world: World, draw: random.Random) -> None:
    for number in range(2):
        world.kill_worker(f"thresholds-{number}", wipe=True)


def executors(world: World, draw: random.Random) -> None:
    for _ in range(5):
        world.kill_executor(draw.randrange(EXECUTORS))
        world.sleep(0.3)


def broker(world: World, draw: random.Random) -> None:
    world.services["kafka"].kill()
    world.sleep(draw.uniform(0, 3))
    world.services["kafka"].start()


def frozen_worker(world: World, draw: random.Random) -> None:
    with stopped(world.workers[f"thresholds-{draw.randrange(2)}"]):
        world.sleep(SESSION_S + 4.0)


def postgres(world: World, draw: random.Random) -> None:
    world.services["postgres"].kill()
    world.sleep(draw.uniform(0, 3))
    world.services["postgres"].start()


def cut_connections(world: World, draw: random.Random) -> None:
    assert world.proxy is not None
    for _ in range(10):
        world.proxy.cut()
        world.sleep(draw.uniform(0.05, 0.4))


def redis_killed(world: World, draw: random.Random) -> None:
    world.services["redis"].kill()
    world.sleep(draw.uniform(0, 3))
    world.services["redis"].start()


def redis_emptied(world: World, draw: random.Random) -> None:
    with Redis.from_url(world.addresses.redis) as redis:
        redis.flushall()


def poison(world: World, draw: random.Random) -> None:
    async def produce() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=world.addresses.kafka)
        await producer.start()
        try:
            for _ in range(50):
                await producer.send(EVENTS.name, draw.choice(POISON), key=draw.randbytes(4))
        finally:
            await producer.stop()

    asyncio.run(produce())


FAULTS: dict[str, Fault] = {
    "kill one worker": one_worker,
    "kill a threshold worker": one_threshold_worker,
    "kill all workers": all_workers,
    "kill and wipe a threshold worker": wiped_worker,
    "kill and wipe all threshold workers": all_wiped,
    "kill executors in mid-burst": executors,
    "kill the broker": broker,
    "stop a worker beyond its session": frozen_worker,
    "kill Postgres": postgres,
    "cut Postgres connections": cut_connections,
    "kill Redis": redis_killed,
    "empty Redis": redis_emptied,
    "poison records": poison,
}
KILLS = {
    "kill one worker", "kill a threshold worker", "kill all workers",
    "kill and wipe a threshold worker", "kill and wipe all threshold workers",
}  # fmt: skip
"""Those after which thresholds have to flow again within seconds."""
ALL_FAULTS: dict[str, Fault] = {**FAULTS, **CLUSTER_FAULTS}
ALL_KILLS = {*KILLS, *KILLED_BROKERS}
