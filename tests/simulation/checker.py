"""What must be true when a run has come to rest, by an account that takes no part in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import orjson

from agents.thresholds.recovery import Restoring
from headstart.keys import DEFAULT_PATH
from processing.contexts.thresholds import is_published, threshold_from_row
from processing.state.counters import restored
from processing.state.rows import (
    CONTEXT,
    context_key,
    decode_context,
    default_key,
    is_deleted,
)
from sinks.redis.thresholds import encode_value
from tests.simulation import clocks, defaults
from tests.simulation.broker import PARTITIONS, Log
from tests.simulation.clients import Disk, Store
from tests.simulation.counting import counted
from tests.simulation.databases import version_of
from tests.simulation.faults import PATTERNS, Rebuild
from tests.simulation.rebuilding import followed
from tests.simulation.steering import OPERATORS_KEY
from tests.simulation.traffic import JOINED
from tests.simulation.world import World
from topics.catalogue import CHANGELOG, DEAD_LETTERS, EVENTS, THRESHOLDS
from topics.control.messages import SIGNATURE_HEADER, signature

Rows = dict[bytes, bytes]


def differences(world: World) -> Iterator[str]:
    """Yield every way in which a world at rest breaks the promise."""
    yield from world.wrong
    yield from (f"redis went back: {what}" for what in world.redis.went_back)
    yield from _stored(world)
    yield from _dead_letters(world)
    served: dict[tuple[str, str], tuple[tuple[int, int], bytes]] = {}
    tables: list[Rows] = []
    for partition in range(PARTITIONS):
        right = oracle(world, partition)
        store = world.owner_of(partition).store
        yield from _compare("table", partition, live(dict(store.scan(partition))), right)
        log = world.broker.logs[CHANGELOG.name][partition]
        yield from _compare("changelog", partition, recover(log, world.epoch.number), right)
        log.compact(float("inf"))
        again = recover(log, world.epoch.number)
        yield from _compare("compacted changelog", partition, again, right)
        yield from _counts(world, partition, right)
        if not any(isinstance(fault, Rebuild) for fault in world.schedule.faults):
            # One that was rebuilt is of a later offset than its last outcome.
            yield from _learners(world, partition, right)
        yield from _announced(world, partition, right)
        if world.righted:
            yield from _clocks(world, partition, right)
        served |= _thresholds(partition, right)
        tables.append(right)
    if world.schedule.merging:
        yield from defaults.differences(world.rules.policy, tables)
    for place in sorted(served.keys() | world.redis.values.keys()):
        found, wanted = world.redis.values.get(place), served.get(place)
        if found is not None and orjson.loads(found[1]).get("deleted"):
            found = None
        if found != wanted:
            yield f"redis: {place} is {found}, the table has {wanted}"


def live(rows: Mapping[bytes, bytes]) -> Rows:
    """Return the rows that are not deleted."""
    return {key: row for key, row in rows.items() if not is_deleted(row)}


def oracle(world: World, partition: int) -> Rows:
    """Return the rows of one plain pass over everything that the logs ever held."""
    return live(followed(world, partition).table)


def recover(log: Log, epoch: int) -> Rows:
    """Return the live rows that a worker with an empty disk would restore."""
    disk = Disk()
    store = Store(disk, epoch)
    restoring = Restoring(store, 0)
    restoring.apply(
        [record.key for record in log.records], [record.value for record in log.records], log.end
    )
    restoring.write(log.end - 1)
    return live(disk.rows.get(0, {}))


def _compare(what: str, partition: int, found: Rows, right: Rows) -> Iterator[str]:
    for key in sorted(found.keys() | right.keys()):
        if found.get(key) != right.get(key):
            yield (
                f"{what} of partition {partition}: {key!r} is {found.get(key)!r}, "
                f"a plain pass gives {right.get(key)!r}"
            )


def _stored(world: World) -> Iterator[str]:
    wanted = {event.id for event in world.appended.values()}
    wanted |= {orjson.loads(value)["id"] for value in world.extra}
    stored: Counter[str] = Counter()
    for (_at, _tenant, name), times in world.postgres.rows.items():
        stored[name] += times
    yield from (f"lost: {name} is not stored" for name in sorted(wanted - stored.keys()))
    yield from (f"stored, but never emitted: {name}" for name in sorted(stored.keys() - wanted))
    yield from (f"double: {name} is stored {n} times" for name, n in stored.items() if n > 1)
    if not world.emitted <= wanted:
        yield "an event whose emit returned is in no spool"


def _counts(world: World, partition: int, rows: Rows) -> Iterator[str]:
    """Compare outcomes per context with what was emitted, by a count of its own."""
    if not world.orderly and world.schedule.most_contexts < 1_000:
        return  # which contexts were evicted depends on joins that cannot be known
    wanted = counted(world, partition)
    for key, row in rows.items():
        if key.startswith(CONTEXT) and (JOINED.encode() not in key or world.orderly):
            context = decode_context(row)
            found = (context.outcomes, restored(context.outcomes, 0, 0, context.counts)[-2])
            if found != (right := wanted.pop(key, (0, 0))):
                yield f"counted: {key!r} has {found} outcomes and feedback, right is {right}"
    for key, n in wanted.items():
        if JOINED.encode() not in key or world.orderly:
            yield f"lost: {key!r} has {n} outcomes and feedback, and no row"


def _clocks(world: World, partition: int, rows: Rows) -> Iterator[str]:
    """Compare with what a plain pass gives if no clock had been wrong."""
    if any(isinstance(fault, Rebuild) for fault in world.schedule.faults):
        return  # its staged rows are of the log as it is
    right = live(followed(world, partition, change=partial(clocks.righted, world)).table)
    yield from clocks.differences(partition, rows, right)


def _learners(world: World, partition: int, rows: Rows) -> Iterator[str]:
    """Compare the last learner of each context with the choice before that in the log."""
    chosen: list[tuple[int, dict[str, Any]]] = []
    for record in world.broker.logs[EVENTS.name][partition].everything:
        signed = dict(record.headers).get(SIGNATURE_HEADER)
        fields = orjson.loads(record.value or b"{}") if signed else {}
        genuine = signed == signature(record.value or b"", OPERATORS_KEY)
        if genuine and fields["kind"] == "learner":
            chosen.append((record.offset, fields))
    for key, row in rows.items():
        if key[:1] != CONTEXT or world.past:  # what was chosen in an earlier log holds on
            continue
        context = decode_context(row)
        wanted = _learner_of(key.decode(), [c for at, c in chosen if at < context.offset])
        if context.learner != (wanted or world.schedule.learner):
            yield f"learner: {key!r} has {context.learner}, chosen is {wanted}"


def _learner_of(key: str, chosen: list[dict[str, Any]]) -> str | None:
    newest: dict[str, dict[str, Any]] = {}
    for choice in sorted(chosen, key=lambda each: (each["at"], each["id"])):
        newest[choice["pattern"]] = choice
    for pattern in reversed(PATTERNS):
        choice = newest.get(pattern, {})
        words = [part.removesuffix("*") for part in pattern.split("/")]
        if choice.get("learner") and all(word in key for word in words):
            return str(choice["learner"])
    return None


def _thresholds(partition: int, rows: Rows) -> dict[tuple[str, str], tuple[tuple[int, int], bytes]]:
    """Return what Redis must hold of these rows."""
    answers = [
        threshold_from_row(key, row) for key, row in rows.items() if is_published(partition, key)
    ]
    return {(t.tenant, t.path): (version_of(t), encode_value(t)) for t in answers if not t.deleted}


def _announced(world: World, partition: int, rows: Rows) -> Iterator[str]:
    """Compare the newest announcement of each context with its row."""
    newest: dict[tuple[str, str], dict[str, object]] = {}
    for record in world.broker.logs[THRESHOLDS.name][partition].records:
        if record.value is None:
            continue
        fields = orjson.loads(record.value)
        place = (fields["tenant"], fields["path"])
        known = newest.get(place)
        version = (fields["epoch"], fields["offset"])
        if known is None or version >= (known["epoch"], known["offset"]):
            newest[place] = fields
    for key, row in rows.items():
        if is_published(partition, key):
            right = threshold_from_row(key, row)
            fields = newest.get((right.tenant, right.path), {})
            answer = (fields.get("speculate"), fields.get("suggest"))
            if (
                answer != (right.speculate, right.suggest)
                or bool(fields.get("deleted")) != right.deleted
            ):
                yield f"announced: {key!r} as {answer}, the table has {right.speculate}"
    for (tenant, path), fields in newest.items():
        key = default_key(tenant) if path == DEFAULT_PATH else context_key(tenant, path)
        if key not in rows and not fields.get("deleted"):
            yield f"announced: {path!r} of {tenant}, which has gone"


def _dead_letters(world: World) -> Iterator[str]:
    found = {
        (group.removeprefix("headstart-"), value)
        for group, value in (
            ((record.key or b"").decode(), record.value)
            for broker in [*(broker for _epoch, broker in world.past), world.broker]
            for record in broker.logs[DEAD_LETTERS.name][0].records
        )
    }
    for group, value in world.refused:
        if (group, value) not in found:
            yield f"no dead letter of {group} for {value!r}"
    for group, value in sorted(found - set(world.refused)):  # type: ignore[type-var]
        yield f"a dead letter of {group} for {value!r}, which is good"
