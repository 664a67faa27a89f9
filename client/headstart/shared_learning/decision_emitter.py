"""Emits decisions and shared values to `headstart.decisions`, without blocking or raising.

They have a spool directory of their own beside that of events: at its limit the oldest decisions
are dropped, and no event is refused because of them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import orjson

from headstart.arguments import environment
from headstart.arguments.addresses import broker_addresses
from headstart.emitting.disk_buffer import DiskBuffer
from headstart.emitting.flushing import Flushing
from headstart.events.schema import fill_in
from headstart.keys import event_key
from headstart.scrubbing.scrubber import Scrubbing
from headstart.shipping.supervisor import Mode
from headstart.spool.layout import SpoolTarget, decisions_directory, default_directory
from headstart.spool.settings import SpoolSettings

log = logging.getLogger("headstart")

TOPIC: Final = "headstart.decisions"
LIMIT_BYTES: Final = 256 << 20
"""Of the spool directory."""
_LINGER_S: Final = 0.2
"""Decisions are not urgent: snapshots are made every few seconds."""


class DecisionEmitter:
    """Sends decisions of one process to Kafka by way of a spool. Thread-safe, usable after a fork.

    They are not scrubbed: they hold hashes, names of tools, small numbers, and values that the
    scrubber has let pass (`headstart.prediction.shared.value_sharing`).
    """

    def __init__(
        self,
        kafka: str,
        *,
        spool: str | os.PathLike[str] | None = None,
        shipper: Mode | None = None,
    ) -> None:
        """`spool`: default: the spool directory of events with `-decisions` after its name.

        Raises `SpoolUnavailable` and `InvalidArgument`.
        """
        target = SpoolTarget(
            broker_addresses(kafka), TOPIC, _LINGER_S, environment.compression(),
            Scrubbing("off"), environment.client_id(), environment.profile(),
        )  # fmt: skip
        folder = decisions_directory(default_directory()) if spool is None else Path(spool)
        settings = SpoolSettings(folder.absolute(), LIMIT_BYTES, on_full="drop_oldest")
        self._kafka = kafka
        self._buffer = DiskBuffer(target, settings, environment.shipper_mode(shipper))
        self._begin()
        self._failed = False
        _emitters.add(self)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._flushing = Flushing(self._buffer, self._kafka)
        self._closed = False

    def emit(self, event: Mapping[str, Any], tenant: str, workflow_type: str) -> None:
        """Accept an event of the decisions' topic; one that cannot be spooled is dropped."""
        now_ms = time.time_ns() // 1_000_000
        record = {**event, "tenant": tenant, "workflow_type": workflow_type}
        fill_in(record, now_ms)
        try:
            body = orjson.dumps(record)
            with self._lock:
                if not self._closed:
                    self._buffer.put(event_key(tenant, workflow_type), body, now_ms)
            self._failed = False
        except (OSError, RuntimeError, ValueError, TypeError) as error:
            if not self._failed:
                log.warning("decisions are not emitted, and not learned by others: %s", error)
            self._failed = True

    def flush(self, timeout_s: float = 5.0) -> None:
        """Wait until the broker has all decisions. Raises `NotDelivered`."""
        self._flushing.flush(timeout_s)

    def close(self, wait_s: float = 1.0) -> None:
        """Close; the shipper sends what is in the spool. Idempotent."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._buffer.close(wait_s)

    def after_fork(self) -> None:
        """Begin a spool of its own in a forked child."""
        self._buffer.abandon()
        self._begin()


_emitters: WeakSet[DecisionEmitter] = WeakSet()


def _after_fork() -> None:
    for emitter in list(_emitters):
        emitter.after_fork()


os.register_at_fork(after_in_child=_after_fork)
