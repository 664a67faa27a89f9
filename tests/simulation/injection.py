"""Makes faults happen: what each kind of fault does to the world at its step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulation import faults
from tests.simulation.broker import COMPACTION_LAG_S, HEARTBEAT_S, RETENTION_S
from tests.simulation.clocks import witnessed, write
from tests.simulation.failovers import fail_over
from tests.simulation.process import Process
from tests.simulation.rebuilding import rebuild
from tests.simulation.recreation import recreate
from tests.simulation.steering import forget, plant, steer, weigh
from tests.simulation.tampering import tamper
from tests.simulation.traffic import poison
from tests.simulation.transactions import transact
from tests.simulation.worker import Worker
from tests.simulation.world import World
from topics.catalogue import CHANGELOG, EVENTS

SPOOL_LIFE_HOURS = 14 * 24


def inject(world: World, fault: faults.Fault) -> None:
    """Make a fault happen now."""
    world.note(f"fault: {fault}")
    _HOW[type(fault)](world, fault)


def _alive(world: World, name: str) -> Worker | None:
    worker = world.workers.get(name)
    return worker if worker is not None and worker.running else None


def _kill(world: World, fault: faults.Kill) -> None:
    names = list(world.workers) if fault.worker == "all" else [fault.worker]
    for name in names:
        world.workers[name].kill("killed")
        if fault.wipe and world.adopted():  # else these are the only rows there are
            world.disks.pop(name, None)


def _stop(world: World, fault: faults.Stop) -> None:
    if (worker := _alive(world, fault.worker)) is not None:
        worker.stop()


def _stall(world: World, fault: faults.Stall) -> None:
    if (worker := _alive(world, fault.worker)) is None:
        return
    since = world.loop.now
    worker.pause()

    def wake() -> None:
        if worker.paused:
            worker.stalled = world.loop.now - since
            world.note(f"{worker.name} wakes after {worker.stalled:.1f} s")
            worker.resume()
            world.later(world.chance.uniform(0, HEARTBEAT_S), worker.on_heartbeat)

    if fault.seconds > 10:
        world.later(10.0, worker.group.leave, worker)
    world.later(fault.seconds, wake)


def _evict(world: World, fault: faults.Evict) -> None:
    if (worker := _alive(world, fault.worker)) is not None:
        worker.lose_the_group(fault.heartbeats * HEARTBEAT_S)


def _rebalance(world: World, fault: faults.Rebalance) -> None:
    world.broker.groups[fault.group].rebalance()


def _kill_executor(world: World, fault: faults.KillExecutor) -> None:
    process: Process = world.shipper if fault.name == "shipper" else world.executors[fault.name]
    process.kill("killed")


def _duplicate(world: World, fault: faults.Duplicate) -> None:
    if world.recreating:
        return
    if not fault.reframed:
        if world.frames:
            world.append(*world.chance.choice(world.frames))
        return
    spools = [(key, sent) for spool in world.spools for key, sent in spool.sent.items()]
    if spools:
        key, sent = world.chance.choice(spools)
        begin = world.chance.randrange(len(sent))
        world.append(key, sent[begin : begin + world.chance.randint(1, 8)])


def _poison(world: World, fault: faults.Poison) -> None:
    if world.recreating:
        return
    partition, key, value, groups = poison(world.chance, fault.kind, world.wall_ms())
    world.append_record(partition, key, value)
    world.refused += [(group, value) for group in groups]
    if fault.kind in {"foreign", "kcat"}:
        world.extra.append(value)


def _gap(world: World, fault: faults.Gap) -> None:
    if (worker := _alive(world, fault.worker)) is None:
        return
    for partition, position in worker.app.consumer.position.items():
        end = world.broker.logs[EVENTS.name][partition].end
        if end > position:
            worker.app.consumer.position[partition] = world.chance.randint(position + 1, end)


def _hole(world: World, fault: faults.Hole) -> None:
    if not world.broker.kafka:
        world.broker.holes += fault.tries


def _redis(world: World, fault: faults.Redis) -> None:
    redis = world.redis
    if fault.how == "emptied":
        redis.empty()
    elif fault.how == "snapshot":
        redis.snapshot()
        world.later(world.chance.choice([1.0, 10.0]), redis.restart)
    else:
        redis.down = True
        world.later(fault.seconds, lambda: setattr(redis, "down", False))


def _tamper(world: World, fault: faults.Tamper) -> None:
    tamper(world, fault.how)


def _postgres(world: World, fault: faults.Postgres) -> None:
    postgres = world.postgres
    postgres.connection += 1
    if fault.seconds:
        postgres.down = True
        world.later(fault.seconds, lambda: setattr(postgres, "down", False))


def _compact(world: World, fault: faults.Compact) -> None:
    log = world.broker.logs[CHANGELOG.name][fault.partition]
    log.compact(world.loop.now - COMPACTION_LAG_S)


def _retain(world: World, fault: faults.Retain) -> None:
    """Both groups have processed what is deleted, and no worker is suspended for so long."""
    for partition, log in enumerate(world.broker.logs[EVENTS.name]):
        stored = world.postgres.offsets.get((world.epoch.number, partition), 0)
        old = log.older(world.loop.now - RETENTION_S)
        log.retain(min(stored, world.applied(partition), old))


def _time(world: World, fault: faults.Time) -> None:
    hours = fault.hours
    if hours > SPOOL_LIFE_HOURS:
        if world.appending() or any(any(spool.waiting.values()) for spool in world.spools):
            hours = 2.0  # an older spool would have been set aside
        else:
            world.frames.clear()
            for spool in world.spools:
                spool.sent.clear()
    world.orderly &= hours < 1
    world.hours += hours


def _skew(world: World, fault: faults.Skew) -> None:
    if fault.name.startswith("thresholds") or witnessed(world):
        world.skews[fault.name] = int(fault.minutes * 60_000)
    else:
        world.later(1.0, _skew, world, fault)


def _stranger(world: World, fault: faults.Stranger) -> None:
    if world.recreating:
        return
    if witnessed(world):
        write(world, fault)
    elif not world.calm:
        world.later(1.0, _stranger, world, fault)


def _steer(world: World, fault: faults.Steer) -> None:
    steer(world, fault)


def _forget(world: World, fault: faults.Forget) -> None:
    forget(world, fault)


def _plant(world: World, fault: faults.Plant) -> None:
    plant(world, fault)


def _weigh(world: World, fault: faults.Weigh) -> None:
    weigh(world, fault)


def _rebuild(world: World, fault: faults.Rebuild) -> None:
    rebuild(world, fault)


def _recreate(world: World, fault: faults.Recreate) -> None:
    recreate(world, fault.lost)


def _transact(world: World, fault: faults.Transact) -> None:
    transact(world, fault)


_HOW: dict[type, Callable[[World, Any], None]] = {
    faults.Kill: _kill, faults.Stop: _stop, faults.Stall: _stall, faults.Evict: _evict,
    faults.Rebalance: _rebalance, faults.KillExecutor: _kill_executor,
    faults.Duplicate: _duplicate, faults.Poison: _poison, faults.Gap: _gap, faults.Hole: _hole,
    faults.Redis: _redis, faults.Postgres: _postgres, faults.Compact: _compact,
    faults.Retain: _retain, faults.Time: _time, faults.Skew: _skew,
    faults.Stranger: _stranger, faults.Steer: _steer,
    faults.Forget: _forget, faults.Plant: _plant, faults.Weigh: _weigh,
    faults.Rebuild: _rebuild, faults.Recreate: _recreate, faults.Transact: _transact,
    faults.Tamper: _tamper, faults.Failover: fail_over,
}  # fmt: skip
