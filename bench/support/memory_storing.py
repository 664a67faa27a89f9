"""What it costs to keep episodes: CPU of the worker and its backend, and bytes on disk."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any, Final, TypeVar

from psycopg import AsyncConnection

from agents.memory.assembling import StepTarget, assemble_next
from agents.memory.embedding import GuardedEmbedder
from agents.memory.worker import BATCH as ROWS
from bench.support.backend_cpu import backend_cpu_s
from bench.support.measuring import echo
from bench.support.memory_load import SPACE_MS, RunMaker
from bench.support.outbox_cost import BATCH, cut_batches, mixed, outbox_cost, refuse_none
from bench.support.packed_storage import measure_packing
from memory.embedding.wordllama import WordLlamaEmbedder
from memory.store.outbox import fill_outbox, outbox_lag
from memory.store.vectors import can_store_vectors, use_model
from sinks.connections import connect_postgres
from sinks.postgres.episodes import EpisodeSink, encode_events
from sinks.postgres.packing.writing import LEAST_COLD_S
from sinks.postgres.partitions import ensure_partitions

T = TypeVar("T")

OUTBOX_RUNS: Final = 12_000
TOGETHER: Final = 2_000
"""Runs whose events are mixed and stored before the next ones."""
TEXTS: Final = 20_000
_SIZES: Final = """
    SELECT 'events', sum(pg_total_relation_size(relid)) FROM pg_partition_tree('episodic_events')
    UNION ALL SELECT 'episodes', pg_total_relation_size('episodes')
    UNION ALL SELECT 'vectors', sum(pg_total_relation_size(relid))
        FROM pg_partition_tree('episode_vectors')
    UNION ALL SELECT 'outbox', pg_total_relation_size('episode_outbox')
"""


async def measure_storing(dsn: str, runs: int) -> dict[str, Any]:
    """Return the figures for `runs` runs of about ten events each, in a migrated database."""
    now = datetime.now(UTC)
    days = runs * SPACE_MS // 86_400_000 + 1
    begin = round((now - timedelta(milliseconds=runs * SPACE_MS)).timestamp() * 1000)
    cold = begin - round((LEAST_COLD_S + 3_600) * 1000)
    async with await connect_postgres(dsn) as connection:
        await ensure_partitions(connection, now.date(), days + 2, 1)
    made = list(RunMaker(min(runs, OUTBOX_RUNS), begin))
    found: dict[str, Any] = await outbox_cost(dsn, cut_batches(mixed(made, 1)))
    echo(f"outbox: {found}")
    async with await connect_postgres(dsn) as connection:
        await connection.execute("TRUNCATE episodic_events, episode_outbox")
        events, raw = await store_runs(dsn, RunMaker(runs, cold))
        await connection.execute("VACUUM ANALYZE episodic_events")
        found |= {"events": events, "runs": runs, "bytes_per_event": round(raw / events, 1)}
        found |= await _worker(dsn, raw)
    return found | _embedding(begin)


async def store_runs(dsn: str, runs: Iterable[list[bytes]]) -> tuple[int, int]:
    """Store the events of all runs as the sink does; return their number and bytes as JSON."""
    events = raw = 0
    async with await EpisodeSink.open(dsn) as sink:
        for number, part in enumerate(_parts(runs, TOGETHER)):
            for batch in _cut(mixed(part, number)):
                lines = encode_events(batch)
                await sink.store(lines, {}, topic="bench", epoch=1, on_refused=refuse_none)
                events += len(batch)
                raw += sum(map(len, batch))
            echo(f"{events:,} events are stored")
    return events, raw


def _parts(values: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(values)
    while part := list(islice(rest, size)):
        yield part


def _cut(events: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for begin in range(0, len(events), BATCH):
        yield events[begin : begin + BATCH]


async def _worker(dsn: str, raw: int) -> dict[str, Any]:
    """Assemble every run twice, as the worker does; return episodes per second of CPU.

    The first time each is embedded and inserted, the second time nothing has changed.
    """
    embedder = WordLlamaEmbedder()
    embedder.embed(["loads the model"])
    async with await connect_postgres(dsn) as connection:
        await can_store_vectors(connection)
        model = await use_model(connection, embedder)
        target = StepTarget(connection, GuardedEmbedder(embedder), model.id)
        waiting = (await outbox_lag(connection)).rows
        first = await _all_runs(target, "new")
        await connection.execute("VACUUM ANALYZE episodes, episode_vectors, episode_outbox")
        storage = await _storage(connection, raw)
        again = await _all_runs(target, "again")
        packed = await measure_packing(connection, raw)
    return {
        "worker_episodes_per_cpu_s": first["per_cpu_s"],
        **{f"worker_{name}": value for name, value in first.items() if name != "per_cpu_s"},
        "worker_unchanged_per_cpu_s": again["per_cpu_s"],
        **storage,
        **packed,
        "outbox_rows_per_run": round(waiting / first["episodes"], 2),
    }


async def _all_runs(target: StepTarget, what: str) -> dict[str, Any]:
    """Work off an outbox that has every run once."""
    connection = target.connection
    await connection.execute("TRUNCATE episode_outbox")
    await fill_outbox(connection)
    backend, own, wall = backend_cpu_s(connection), time.process_time(), time.perf_counter()
    written = said = 0
    while (done := await assemble_next(target, ROWS, 0.0)).rows:
        written += done.rows
        if written - said >= 10_000:
            said = written
            spent = backend_cpu_s(connection) - backend + time.process_time() - own
            echo(f"{written:,} episodes ({what}), {written / spent:,.0f} per second of CPU")
    backend, own = backend_cpu_s(connection) - backend, time.process_time() - own
    return {
        "per_cpu_s": round(written / (backend + own)),
        "episodes": written,
        "backend_cpu_s": round(backend, 1),
        "own_cpu_s": round(own, 1),
        "wall_s": round(time.perf_counter() - wall, 1),
    }


async def _storage(connection: AsyncConnection[Any], raw: int) -> dict[str, float]:
    """Return bytes on disk, indexes included, as multiples of the events' JSON."""
    sizes = dict(await (await connection.execute(_SIZES)).fetchall())
    shares = {name: float(size) / raw for name, size in sizes.items()}
    return {
        "storage_events_ratio": round(shares["events"], 3),
        "storage_episodes_ratio": round(shares["episodes"], 3),
        "storage_vectors_ratio": round(shares["vectors"], 3),
        "storage_ratio": round(sum(shares.values()), 3),
    }


def _embedding(begin: int) -> dict[str, int]:
    maker = RunMaker(0, begin, seed=9)
    texts = [maker.query()[1] for _ in range(TEXTS)]
    embedder = WordLlamaEmbedder()
    embedder.embed(texts[:1])
    own = time.process_time()
    for part in _parts(texts, ROWS):
        embedder.embed(part)
    return {"embedding_texts_per_cpu_s": round(TEXTS / (time.process_time() - own))}
