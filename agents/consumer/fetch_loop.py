"""The fetch loop: returns source topics as `RecordBatch`, other topics as aiokafka does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from aiokafka.consumer.fetcher import FetchResult

from agents.consumer.fetch_to_batch import MAX_BYTES, to_record_batch
from processing.records.batch import RecordBatch

PAUSED_POLL_S: Final = 0.02

PrefetchScan = Callable[[Any, RecordBatch], None]
"""Called with the batch of a partition, in the thread that fetches."""


async def fetched_records(
    fetcher: Any,
    partitions: AbstractSet[Any] | None,
    sources: AbstractSet[str],
    timeout_s: float,
    max_records: int | None,
    paused: AbstractSet[Any] = frozenset(),
    prefetch_scan: PrefetchScan | None = None,
    most_bytes: int = MAX_BYTES,
) -> dict[Any, list[Any]]:
    """Return what was fetched, by partition; wait up to `timeout_s` seconds for it.

    Partitions in `paused`, which may change meanwhile, are skipped; of the others it returns
    batches of about `most_bytes` of records. `prefetch_scan` is called with every batch.
    Mirrors `aiokafka.consumer.fetcher.Fetcher.fetched_records`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        if fetcher._subscriptions.reassignment_in_progress:
            await fetcher._subscriptions.wait_for_assignment()
        drained = _take(
            fetcher, partitions, sources, max_records, paused, prefetch_scan, most_bytes
        )
        remaining = deadline - loop.time()
        if drained or remaining <= 0:
            return drained
        if fetcher._records:
            # Of paused partitions, which may resume before anything arrives.
            remaining = min(remaining, PAUSED_POLL_S)
        waiter = fetcher._create_fetch_waiter()
        done, _pending = await asyncio.wait([waiter], timeout=remaining)
        if not done or fetcher._closed:
            waiter.cancel()
            return {}
        waiter.result()  # raises what the fetch raised, authorization errors among it


def _take(
    fetcher: Any,
    partitions: AbstractSet[Any] | None,
    sources: AbstractSet[str],
    max_records: int | None,
    paused: AbstractSet[Any],
    prefetch_scan: PrefetchScan | None,
    most_bytes: int,
) -> dict[Any, list[Any]]:
    drained: dict[Any, list[Any]] = {}
    for tp in list(fetcher._records):
        if (partitions and tp not in partitions) or tp in paused:
            if not fetcher._subscriptions.is_assigned(tp):
                del fetcher._records[tp]
            continue
        result = fetcher._records[tp]
        if type(result) is not FetchResult:  # a FetchError
            if drained:
                return drained  # raised by the next call
            _forget(fetcher, tp)
            result.check_raise()
            continue
        try:
            if tp.topic in sources:
                batch = to_record_batch(result, most_bytes)
                records = [] if batch is None else [batch]
                if prefetch_scan is not None and batch:
                    prefetch_scan(tp, batch)
            else:
                records = result.getall(max_records)
        finally:
            if not result.has_more():
                _forget(fetcher, tp)
        if records:
            drained[tp] = records
    return drained


def _forget(fetcher: Any, tp: Any) -> None:
    """Drop a partition's result, so that it is fetched again."""
    del fetcher._records[tp]
    fetcher._notify(fetcher._wait_consume_future)
