"""`SharedLearning`: predictors that learn together with those of other executors."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from typing import Any, Self

from headstart.arguments import environment
from headstart.arguments.checks import identifier, number, redis_url
from headstart.keys import event_key
from headstart.prediction.shared.shared_predictor import SharedCallPredictor
from headstart.shared_learning.decision_emitter import DecisionEmitter
from headstart.shared_learning.snapshot_mirror import POLL_S, SnapshotMirror
from headstart.shipping.supervisor import Mode


class SharedLearning:
    """Makes one predictor for each tenant and workflow type, and keeps it up to date.

        with SharedLearning() as shared:
            setup = SpeculationSetup("refund", tenant="acme", shared_learning=shared)

    What the runs of a predictor teach is emitted, as hashes and small numbers; a worker learns it,
    and every executor loads the result. A value of a user's call is shared only once three users
    have used it, if the scrubber lets it pass. Without Redis or Kafka predictors go on alone.

    Args:
        kafka: Brokers. Default: HEADSTART_KAFKA, else 127.0.0.1:9092.
        redis: Default: HEADSTART_REDIS, else redis://127.0.0.1:6379/0.
        hash_key: Secret of 16 to 64 bytes that keys the hashes, the same in all executors of a
            tenant. Default: HEADSTART_HASH_KEY. Without a key, anyone could find the words behind
            the hashes by hashing guesses.
        spool: Directory of the decisions' spool. Default: that of events with `-decisions` after
            its name.
        shipper: As in `Emitter`.
        poll_s: Seconds between two looks at the models' versions.

    Raises:
        InvalidArgument: Names the argument that cannot be used.
        SpoolUnavailable: There is no default spool directory.
    """

    def __init__(
        self,
        kafka: str | None = None,
        redis: str | None = None,
        *,
        hash_key: bytes | str | None = None,
        spool: str | os.PathLike[str] | None = None,
        shipper: Mode | None = None,
        poll_s: float = POLL_S,
    ) -> None:
        self._hash_key = environment.hash_key(hash_key)
        url = environment.redis(redis)
        redis_url(url)
        number("poll_s", poll_s, 0.0, above=True, unit="seconds")
        self._emitter = DecisionEmitter(environment.kafka(kafka), spool=spool, shipper=shipper)
        self._mirror = SnapshotMirror(url, poll_s=poll_s)
        self._scrubbing = environment.scrubbing()
        self._lock = threading.Lock()
        self._predictors: dict[tuple[str, str], SharedCallPredictor] = {}

    def predictor(self, workflow_type: str, tenant: str = "default") -> SharedCallPredictor:
        """Return the predictor of a tenant's workflow type, made at the first call.

        Raises `InvalidArgument`.
        """
        identifier("workflow_type", workflow_type)
        identifier("tenant", tenant)
        with self._lock:
            found = self._predictors.get((tenant, workflow_type))
            if found is None:
                found = SharedCallPredictor(
                    partial(self._emit, tenant, workflow_type),
                    hash_key=key_of_model(self._hash_key, tenant, workflow_type),
                    scrubbing=self._scrubbing,
                )  # fmt: skip
                self._predictors[tenant, workflow_type] = found
                self._mirror.add(tenant, workflow_type, found)
            return found

    def _emit(self, tenant: str, workflow_type: str, event: Mapping[str, Any]) -> None:
        self._emitter.emit(event, tenant, workflow_type)

    def wait(self, workflow_type: str, tenant: str = "default", *, timeout_s: float = 2.0) -> bool:
        """Wait until a predictor has loaded what Redis has; return False if Redis is away.

        This blocks the thread. Guesses need not wait: they use what is there.
        """
        self.predictor(workflow_type, tenant)
        return self._mirror.wait(tenant, workflow_type, timeout_s)

    def flush(self, timeout_s: float = 5.0) -> None:
        """Wait until the broker has every decision so far. Raises `NotDelivered`."""
        self._emitter.flush(timeout_s)

    def close(self) -> None:
        """End the thread and close the spool, which the shipper sends. Idempotent."""
        self._mirror.close()
        self._emitter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def key_of_model(hash_key: bytes, tenant: str, workflow_type: str) -> bytes:
    """Return the key of the hashes of one model, derived from the secret.

    So equal values of two tenants have other hashes, and neither learns from the other, should a
    record or a snapshot come to the wrong place.
    """
    return blake2b(event_key(tenant, workflow_type), digest_size=32, key=hash_key).digest()


_guard = threading.Lock()
_shared: SharedLearning | None = None


def process_shared_learning() -> SharedLearning:
    """Return that of this process, made at the first use from the environment."""
    global _shared  # noqa: PLW0603 - one for the process, created at the first use
    with _guard:
        if _shared is None:
            _shared = SharedLearning()
        return _shared


def _after_fork() -> None:
    global _guard  # noqa: PLW0603 - a thread of the parent may hold it
    _guard = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
