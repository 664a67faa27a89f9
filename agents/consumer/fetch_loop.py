"""The fetch loop: source topics come as `RecordBatch`, every other topic as aiokafka gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from aiokafka.consumer.fetcher import FetchResult

from agents.consumer.fetch_to_batch import MOST_BYTES, to_record_batch
from processing.records.batch import RecordBatch

HELD_BACK_S: Final = 0.02

LookAhead = Callable[[Any, RecordBatch], None]
"""Shown the batch of a partition, in the thread that fetches."""


async def fetched_records(
    fetcher: Any,
    partitions: AbstractSet[Any] | None,
    sources: AbstractSet[str],
    timeout_s: float,
    max_records: int | None,
    held: AbstractSet[Any] = frozenset(),
    prefetch_scan: LookAhead | None = None,
    most_bytes: int = MOST_BYTES,
) -> dict[Any, list[Any]]:
    """Return what is fetched, by partition; wait up to `timeout_s` seconds for something.

    Of partitions in `held`, which may change meanwhile, nothing is taken; of the others batches of
    about `most_bytes` of records. `prefetch_scan` is shown every batch.
    Mirrors `aiokafka.consumer.fetcher.Fetcher.fetched_records`.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        if fetcher._subscriptions.reassignment_in_progress:
            await fetcher._subscriptions.wait_for_assignment()
        drained = _take(fetcher, partitions, sources, max_records, held, prefetch_scan, most_bytes)
        remaining = deadline - loop.time()
        if drained or remaining <= 0:
            return drained
        if fetcher._records:
            # Held back for partitions under pressure, which may be over before anything arrives.
            remaining = min(remaining, HELD_BACK_S)
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
    held: AbstractSet[Any],
    prefetch_scan: LookAhead | None,
    most_bytes: int,
) -> dict[Any, list[Any]]:
    drained: dict[Any, list[Any]] = {}
    for tp in list(fetcher._records):
        if (partitions and tp not in partitions) or tp in held:
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
    """Free the place of a partition, so that it is fetched from again."""
    del fetcher._records[tp]
    fetcher._notify(fetcher._wait_consume_future)
