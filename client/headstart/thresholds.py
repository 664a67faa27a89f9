"""The reader that executors import: how confident must a guess be, here and now?

One round trip to Redis answers for the whole fallback chain of a context. A reader never raises for
what goes wrong at Redis: it answers with the conservative default. Nothing here decides or learns.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

import orjson
import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from headstart.calibration import Calibration, Deviation, combined, threshold
from headstart.contexts import DEFAULT_LEVELS, context_paths, redis_key

DEFAULT_SPECULATE: Final = 0.92
DEFAULT_SUGGEST: Final = 0.70
"""The conservative thresholds of a context that nothing is known of."""
PAUSE_S: Final = 0.25  # how long an unanswered question keeps a reader from asking again

Context = Mapping[str, object]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Threshold:
    """The answer for one context; confidences are in [0, 1].

    A guess at or above `speculate` is worth starting early, one at or above `suggest` worth
    showing. `level` is the context path that answered, or "default"; `version` is (epoch, offset),
    None for the default. `available` is False when Redis did not answer. `speculate` is for the
    context's average gain and cost; `calibration`, where the learner holds one, for any.
    """

    speculate: float = DEFAULT_SPECULATE
    suggest: float = DEFAULT_SUGGEST
    level: str = "default"
    version: tuple[int, int] | None = None
    outcomes: int = 0
    available: bool = True
    calibration: Calibration | None = None

    def speculate_for(self, gain: float, cost: float) -> float:
        """Return the least confidence worth starting for a gain and a cost in the same unit.

        `speculate` where no calibration is known. Raises `ValueError` where one is negative.
        """
        return threshold(self.calibration, gain, cost) if self.calibration else self.speculate

    @property
    def known(self) -> bool:
        """Whether this was learned, rather than being the default."""
        return self.version is not None


_UNKNOWN: Final = Threshold()
_UNAVAILABLE: Final = Threshold(available=False)


class _Reader:
    """What both readers share: everything but the round trip."""

    _connect: ClassVar[Callable[..., Any]]
    _retry: ClassVar[type[Retry] | type[AsyncRetry]]

    def __init__(
        self,
        redis_url: str,
        *,
        levels: Sequence[str] = DEFAULT_LEVELS,
        timeout_s: float = 0.05,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._levels, self._clock, self._address = tuple(levels), clock, redis_address(redis_url)
        self._ask_again_at: float | None = None  # None: Redis answers
        self._url, self._timeout_s = redis_url, timeout_s

    def _connected(self, **options: Any) -> Any:
        return self._connect(
            self._url,
            socket_timeout=self._timeout_s,
            socket_connect_timeout=self._timeout_s,
            # a connection that Redis has closed meanwhile is opened anew, once and at once
            retry=self._retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
            **options,
        )

    def _question(self, context: Context | None, fields: Context) -> tuple[str, tuple[str, ...]]:
        """Return the hash and its fields to ask for, fine to coarse."""
        given = {**context, **fields} if context else fields
        workflow_type, tenant = given.get("workflow_type"), given.get("tenant", "default")
        for name, value in (("workflow_type", workflow_type), ("tenant", tenant)):
            if not isinstance(value, str) or not value:
                raise ValueError(f"a context needs a {name}: a string, not {value!r:.64}")
        paths = context_paths(str(workflow_type), given.get, self._levels)
        return redis_key(str(tenant), str(workflow_type)), paths[::-1]

    def _pausing(self) -> bool:
        return self._ask_again_at is not None and self._clock() < self._ask_again_at

    def _answered(self, paths: Sequence[str], values: Sequence[Any]) -> Threshold:
        """Return what the finest known context says; a corrupt value counts as unknown."""
        if self._ask_again_at is not None:
            self._ask_again_at = None
            _LOG.info("Redis at %s answers again", self._address)
        for place, (path, value) in enumerate(zip(paths, values, strict=True)):
            if value is not None and (found := _decode(path, value)):
                calibration = _calibration(values[place:], unseen=place > 0)
                return replace(found, calibration=calibration) if calibration else found
        return _UNKNOWN

    def _failed(self, error: Exception) -> Threshold:
        """Return the default; warn at the beginning of an outage only."""
        if self._ask_again_at is None:
            message = "Redis at %s does not answer (%s): using the default thresholds until it does"
            _LOG.warning(message, self._address, error)
        self._ask_again_at = self._clock() + PAUSE_S
        return _UNAVAILABLE


def _decode(path: str, value: bytes) -> Threshold | None:
    try:
        stored = orjson.loads(value)
        speculate, suggest = float(stored["speculate"]), float(stored["suggest"])
        version, outcomes = (int(stored["epoch"]), int(stored["offset"])), int(stored["outcomes"])
    except (ValueError, TypeError, KeyError):
        return None
    sound = 0.0 <= speculate <= 1.0 and 0.0 <= suggest <= 1.0
    return Threshold(speculate, suggest, path, version, outcomes) if sound else None


def _calibration(values: Sequence[bytes | None], unseen: bool) -> Calibration | None:
    """Return what the values of a chain, fine to coarse, add up to; None where one has no part."""
    deviations = []
    for value in reversed(values):
        try:
            deviations.append(Deviation(**orjson.loads(value or b"")["deviation"]))
            if not all(isfinite(number) for number in deviations[-1]):
                return None
        except (ValueError, TypeError, KeyError):
            return None
    return combined(deviations, unseen=unseen)


class Thresholds(_Reader):
    """Reads thresholds; from any number of threads.

    `timeout_s` bounds each wait for Redis; `levels` refine a workflow type, as in the service.

        with Thresholds("redis://localhost:6379") as thresholds:
            answer = thresholds.get(workflow_type="refund", domain="retail", user_id="u7")
            start_early = confidence >= answer.speculate
    """

    _connect = staticmethod(redis.Redis.from_url)
    _retry = Retry

    def __init__(self, redis_url: str, **options: Any) -> None:
        """Take the arguments above; connect on the first `get`."""
        super().__init__(redis_url, **options)
        self._mine = threading.local()
        self._clients: list[Any] = []

    def _client(self) -> Any:
        """Return this thread's own connection: a pool costs a third of a read and most of its p99.

        Never one from before a fork, which parent and child would both read from.
        """
        held = getattr(self._mine, "held", None)
        if held is None or held[0] != os.getpid():
            held = self._mine.held = (os.getpid(), self._connected(single_connection_client=True))
            self._clients.append(held[1])
        return held[1]

    def get(self, context: Context | None = None, /, **fields: object) -> Threshold:
        """Return the thresholds of a context, given as a mapping, as keywords, or both.

        `tenant` is "default" unless given. Raises `ValueError` without `workflow_type`.
        """
        key, paths = self._question(context, fields)
        if self._pausing():
            return _UNAVAILABLE
        try:
            return self._answered(paths, self._client().hmget(key, paths))
        except (redis.RedisError, OSError) as error:
            return self._failed(error)

    def close(self) -> None:
        """Close the connections of every thread."""
        for client in self._clients:
            client.close()
        self._clients.clear()
        self._mine = threading.local()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncThresholds(_Reader):
    """`Thresholds` for asyncio: the same arguments and answers, within one event loop.

    async with AsyncThresholds("redis://localhost:6379") as thresholds:
        answer = await thresholds.get(workflow_type="refund", domain="retail")
    """

    _connect = staticmethod(redis.asyncio.Redis.from_url)
    _retry = AsyncRetry

    def __init__(self, redis_url: str, **options: Any) -> None:
        """Take the arguments of `Thresholds`; connect on the first `get`."""
        super().__init__(redis_url, **options)
        self._redis = self._connected()

    async def get(self, context: Context | None = None, /, **fields: object) -> Threshold:
        """Return the thresholds of a context; see `Thresholds.get`."""
        key, paths = self._question(context, fields)
        if self._pausing():
            return _UNAVAILABLE
        try:
            return self._answered(paths, await self._redis.hmget(key, paths))
        except (redis.RedisError, OSError) as error:
            return self._failed(error)

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def redis_address(url: str) -> str:
    """Return `host:port/db` of a Redis URL (or a socket's path), fit to be printed."""
    parts = urlsplit(url)
    server = f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    return parts.path if parts.scheme == "unix" else server + parts.path
