"""Mirrors snapshots of shared models from Redis, in a thread of its own.

No guess and no event loop waits for Redis. While it is away, or has a snapshot that cannot be used,
executors go on with what they have.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from weakref import WeakSet

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headstart.connections.redis_clients import REDIS_ERRORS, connect
from headstart.keys import model_key
from headstart.thresholds.base_reader import redis_address

log = logging.getLogger("headstart")

POLL_S: Final = 3.0
"""Between two looks at the version of each model."""
LONGEST_PAUSE_S: Final = 30.0
"""The same while Redis is away."""
LARGEST_BYTES: Final = 1 << 20
"""Of a snapshot that is read: the worker serves at most a quarter of it."""
_NO_RESET: Final = b"0:-1"
_TIMEOUT_S: Final = 2.0
_SHARE: Final = 20.0
"""Loading takes at most a twentieth of the time: so many times as long is waited."""


class LoadsSnapshots(Protocol):
    """What takes the snapshots: a `SharedCallPredictor`."""

    def load(self, data: bytes, /) -> bool:
        """Go on from a snapshot; return False if it cannot be used."""
        ...

    def reset(self) -> None:
        """Forget everything."""
        ...


@dataclass
class _Mirrored:
    """One model, and what was last seen of it in Redis."""

    key: str
    predictor: LoadsSnapshots
    version: bytes | None = None
    reset: bytes = _NO_RESET
    not_before: float = 0.0
    refused: bool = False
    """Redis refused the last look, as it does if the key is of another type."""
    looked: threading.Event = field(default_factory=threading.Event)


class SnapshotMirror:
    """Polls Redis for the models of some predictors. Thread-safe, usable after a fork."""

    def __init__(self, redis_url: str, *, poll_s: float = POLL_S) -> None:
        """Connects in its thread, which starts with the first predictor."""
        self._url, self._poll_s = redis_url, poll_s
        self._models: dict[str, _Mirrored] = {}
        self.busy = threading.Lock()
        """Held while a snapshot is loaded; a fork waits for that."""
        self._begin()
        _mirrors.add(self)

    def _begin(self) -> None:
        self._changed = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._client: Any = None
        self._away = False

    def add(self, tenant: str, workflow_type: str, predictor: LoadsSnapshots) -> None:
        """Keep a predictor up to date from now on."""
        key = model_key(tenant, workflow_type)
        self._models[key] = _Mirrored(key, predictor)
        self._start()

    def wait(self, tenant: str, workflow_type: str, timeout_s: float) -> bool:
        """Wait until Redis was asked for a model, and what it has is loaded; return whether."""
        return self._models[model_key(tenant, workflow_type)].looked.wait(timeout_s)

    def _start(self) -> None:
        self._changed.set()
        if self._thread is None and not self._stopped:
            self._thread = threading.Thread(
                target=self._run, name="headstart-snapshots", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        pause_s = self._poll_s
        while not self._stopped:
            self._changed.clear()
            try:
                for each in list(self._models.values()):
                    self._look_safely(each)
                pause_s, self._away = self._poll_s, False
            except (*REDIS_ERRORS, ValueError) as error:
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                self._note_away(error)
            self._changed.wait(pause_s)
        if self._client is not None:
            self._client.close()

    def _look_safely(self, model: _Mirrored) -> None:
        """Look for a snapshot; a key that Redis refuses to read concerns that model only."""
        try:
            self._look(model)
            model.refused = False
        except redis.ResponseError as error:
            if not model.refused:
                log.warning("%s in Redis cannot be read: %s", model.key, error)
            model.refused = True
            model.looked.set()

    def _look(self, model: _Mirrored) -> None:
        """Load a model's snapshot if it is another one than before."""
        if time.monotonic() < model.not_before:
            return
        version, reset = self._connected().hmget(model.key, "version", "reset")
        if version is None or version == model.version:
            model.looked.set()
            return
        snapshot: bytes | None = None
        size = self._connected().hstrlen(model.key, "snapshot")
        if size > LARGEST_BYTES:
            log.warning("the snapshot in %s has %d bytes, and is not loaded", model.key, size)
        else:
            version, reset, snapshot = self._connected().hmget(
                model.key, "version", "reset", "snapshot"
            )
        begun = time.monotonic()
        with self.busy:
            self._load(model, reset, snapshot)
        model.version, model.reset = version, reset or model.reset
        ended = time.monotonic()
        model.not_before = ended + _SHARE * (ended - begun)
        model.looked.set()

    def _load(self, model: _Mirrored, reset: bytes | None, snapshot: bytes | None) -> None:
        try:
            if reset not in (None, model.reset):
                model.predictor.reset()  # also what was learned before the first look
            if snapshot is not None:
                model.predictor.load(snapshot)
        except Exception:  # else the thread would end, and no later snapshot be loaded
            log.exception("the snapshot in %s cannot be used", model.key)

    def _connected(self) -> Any:
        if self._client is None:
            self._client = connect(
                self._url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
            )  # fmt: skip
        return self._client

    def _note_away(self, error: Exception) -> None:
        if not self._away:
            log.warning(
                "Redis at %s gives no shared models; going on with what is there: %s",
                redis_address(self._url), type(error).__name__,
            )  # fmt: skip
        self._away = True

    def close(self, timeout_s: float = 2.0) -> None:
        """End the thread. Idempotent."""
        self._stopped = True
        self._changed.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def after_fork(self) -> None:
        """Go on in a forked child with a thread and a connection of its own."""
        stopped = self._stopped
        self._begin()
        self._stopped = stopped
        if self._models:
            self._start()


_mirrors: WeakSet[SnapshotMirror] = WeakSet()
_held: list[SnapshotMirror] = []


def _before_fork() -> None:
    for mirror in list(_mirrors):
        mirror.busy.acquire()
        _held.append(mirror)


def _after_in_parent() -> None:
    while _held:
        _held.pop().busy.release()


def _after_in_child() -> None:
    forked = list(_held)
    _after_in_parent()
    for mirror in forked:
        mirror.after_fork()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_in_parent, after_in_child=_after_in_child
)
