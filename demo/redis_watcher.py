"""Records when each published version became visible to subscribers of Redis."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Self

import orjson

from headstart.connections.redis_clients import REDIS_ERRORS, connect
from headstart.keys import redis_key


class RedisWatcher:
    """Records the arrival of each announced threshold within the `with` block."""

    def __init__(self, redis_url: str, tenant: str) -> None:
        self._client: Any = connect(redis_url)
        self._channel = redis_key(tenant, "") + "*"
        self._pubsub: Any = self._client.pubsub(ignore_subscribe_messages=True)
        self._offsets: dict[str, list[int]] = {}
        self._arrivals: dict[str, list[float]] = {}
        self._ended = threading.Event()
        self.announced = 0
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def __enter__(self) -> Self:
        self._pubsub.psubscribe(self._channel)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(2.0)
        self._pubsub.close()
        self._client.close()

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                message = self._pubsub.get_message(timeout=0.2)
            except REDIS_ERRORS:
                return  # Redis has stopped; the arrivals until now count
            if message is None:
                continue
            arrived = time.time() * 1000
            values = orjson.loads(message["data"])
            for threshold in values if isinstance(values, list) else ():  # else overrides
                self.announced += 1
                self._offsets.setdefault(threshold["path"], []).append(threshold["offset"])
                self._arrivals.setdefault(threshold["path"], []).append(arrived)

    def latencies_ms(self, completions: Iterable[tuple[str, int, int]]) -> list[float]:
        """Return, per (path, offset, emitted at in Unix ms), the time until it was visible.

        Visible is the first announcement of the path at or past that offset; an outcome without
        one is left out.
        """
        found = []
        for path, offset, emitted in completions:
            offsets = self._offsets.get(path, [])
            place = bisect_left(offsets, offset)
            if place < len(offsets):
                found.append(self._arrivals[path][place] - emitted)
        return found
