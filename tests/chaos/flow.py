"""Watches published thresholds: how long after a fault they are fresh again, everywhere."""

from __future__ import annotations

import json
import threading
import time
from types import TracebackType
from typing import Self

from redis import Redis
from redis.exceptions import RedisError

from headstart.keys import redis_key

_POLL_S = 0.1


class Flow:
    """Knows, per hash of thresholds, the newest event time that was published, in Unix ms."""

    def __init__(self, redis: str, tenant: str) -> None:
        self._url, self._pattern = redis, f"headstart:thresholds:{tenant}:*"
        self._default = redis_key(tenant, "").encode()
        self._newest: dict[bytes, int] = {}
        self._worst_s = self._looked = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(10)

    def fresh(self, since_ms: int) -> bool:
        """Return whether every announced hash has a value newer than `since_ms`."""
        return bool(self._newest) and min(self._newest.values()) >= since_ms

    def stalest_s(self) -> float:
        """Return how old, in seconds, the newest event is in the hash that is furthest behind."""
        return time.time() - min(self._newest.values(), default=0) / 1000 if self._newest else 0.0

    def take_worst_s(self) -> float:
        """Return the most that `stalest_s` was since the last call."""
        worst_s, self._worst_s = self._worst_s, 0.0
        return worst_s

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked >= _POLL_S:
            self._looked = now
            self._worst_s = max(self._worst_s, self.stalest_s())

    def _watch(self) -> None:
        while not self._ended.is_set():
            try:
                with Redis.from_url(self._url) as redis, redis.pubsub() as subscription:
                    subscription.psubscribe(self._pattern)
                    while not self._ended.is_set():
                        message = subscription.get_message(
                            ignore_subscribe_messages=True, timeout=_POLL_S
                        )
                        self._look()
                        if message is not None:
                            announced = json.loads(message["data"])
                            if isinstance(announced, dict):  # overrides have no time
                                continue
                            key = message["channel"]
                            if key == self._default:  # changes once a minute at most
                                continue
                            newest = max(each["at"] for each in announced)
                            self._newest[key] = max(newest, self._newest.get(key, 0))
            except (RedisError, OSError):  # it is the one that was killed
                time.sleep(_POLL_S)
