"""Rollout modes: off, observe or act. The kill switch, and the way to roll out step by step.

The most restrictive one applies: of the environment, the global one, the tenant's and the agent's.
Any other value, or one that cannot be read, is off: a kill switch must not fail open.
The cache of modes is here too, without I/O. The service sets modes.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

from redis.exceptions import (
    AskError,
    BusyLoadingError,
    ClusterError,
    ReadOnlyError,
    TimeoutError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError

from headstart.keys import MODES, PUBLISHED, PUBLISHING, modes_key
from headstart.thresholds.cache_entries import SubscriptionHeartbeat
from headstart.thresholds.unreadable import warn_once

Mode = Literal["off", "observe", "act"]
"""off: guesses are ignored. observe: decisions are made and logged, but never acted on."""

MOST_RESTRICTIVE_FIRST: Final[tuple[Mode, ...]] = ("off", "observe", "act")

UNKNOWN_MODE: Final[Mode] = "observe"
"""Until a Redis with all modes has responded once: the kill switch may be set, so only log."""

_LOG = logging.getLogger("headstart.thresholds")

_NOT_READY: Final = (
    AskError, BusyLoadingError, ClusterError, ReadOnlyError, TryAgainError,
    RedisConnectionError, TimeoutError, OSError,
)  # fmt: skip
"""Errors of a server that is not ready, or that does not respond."""


def mode_from_environment() -> Mode:
    """Return HEADSTART_MODE, by default act. Raises `ValueError` for any other value."""
    named = os.environ.get("HEADSTART_MODE") or "act"
    if named not in MOST_RESTRICTIVE_FIRST:
        raise ValueError(f"HEADSTART_MODE must be off, observe or act, not {named!r:.64}")
    return named


def known_mode(mode: object) -> Mode:
    """Return a mode; off for an unknown value, such as one of a newer version."""
    for known in MOST_RESTRICTIVE_FIRST:
        if isinstance(mode, str) and mode == known:
            return known
    return "off"


def most_restrictive(modes: Iterable[str]) -> Mode:
    """Return the most restrictive of the modes, act if there are none; unknown values are off."""
    ranks = [MOST_RESTRICTIVE_FIRST.index(known_mode(each)) for each in modes]
    return MOST_RESTRICTIVE_FIRST[min(ranks, default=-1)]


def read_mode(stored: object, where: str) -> Mode:
    """Return the mode in a field of Redis; off, with a warning, if it holds no known mode.

    `stored` is the field's bytes, or the error returned instead. `where`: for the warning.
    """
    text = stored.decode(errors="replace") if isinstance(stored, bytes) else stored
    mode = known_mode(text)
    if mode != text:
        shown = str(text) if isinstance(text, Exception) else text
        warn_once(
            f"the mode {where}", shown, "off applies; set one with `headstart config set mode`"
        )
    return mode


class ModeQuery(NamedTuple):
    """Two fields of the global hash of modes, and `fields` of the tenant's hash.

    The global ones are `*` and the marker that all modes were published to this Redis.
    """

    owner: tuple[str, str | None]
    key: str
    fields: tuple[str, ...]
    heartbeat: SubscriptionHeartbeat | None
    announcements: int

    @property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """Its two commands, word by word; an error in place of a response is read as off."""
        return ("HMGET", MODES, "*", PUBLISHED), ("HMGET", self.key, *self.fields)

    @staticmethod
    def published(values: Sequence[Any]) -> bool:
        """Return whether all modes were published to the Redis that responded.

        If not, a mode that is absent may have been lost.
        """
        if isinstance(values[0], Exception):
            return False
        marker = values[0][1]
        return isinstance(marker, bytes) and not marker.startswith(PUBLISHING)

    def read(self, values: Sequence[Any]) -> Mode:
        """Return the most restrictive mode in the responses to the two commands."""
        everyone, others = values
        if not isinstance(everyone, Exception):
            everyone = everyone[0]
        if isinstance(others, Exception):
            others = [others] * len(self.fields)
        names = [(MODES, "*"), *((self.key, field) for field in self.fields)]
        return most_restrictive(
            read_mode(stored, f"{field} of {key}")
            for (key, field), stored in zip(names, (everyone, *others), strict=True)
            if stored is not None
        )


def not_ready_error(values: Sequence[Any]) -> Exception | None:
    """Return the response's error if Redis reports that it is not ready; else None."""
    return next((each for each in values if isinstance(each, _NOT_READY)), None)


class _CachedMode(NamedTuple):
    """The mode of one owner. `published`: the last one from a Redis with all modes."""

    mode: Mode
    heartbeat: SubscriptionHeartbeat
    published: Mode | None


class ModeCache:
    """The modes of the `limit` tenants and agents that were used last."""

    def __init__(
        self,
        *,
        limit: int,
        staleness_s: float,
        clock: Callable[[], float],
        clustered: bool = False,
    ) -> None:
        """`clustered`: of Redis Cluster, whose keys of modes are others."""
        self._clustered = clustered
        self._limit, self._staleness_s, self._clock = limit, staleness_s, clock
        self._known: OrderedDict[tuple[str, str | None], _CachedMode] = OrderedDict()
        self._heartbeat: SubscriptionHeartbeat | None = None
        self._announcements = 0
        self.published = True
        """Whether Redis had all modes when it last responded."""
        self.lock = threading.Lock()

    def lookup(self, tenant: str, agent: str | None) -> Mode | None:
        """Return a mode that Redis confirmed within `staleness_s` seconds."""
        try:
            mode, heartbeat, _ = self._known[tenant, agent]
            self._known.move_to_end((tenant, agent))
        except (KeyError, TypeError):
            return None
        return mode if self._clock() - heartbeat.confirmed_at <= self._staleness_s else None

    def build_query(self, tenant: str, agent: str | None) -> ModeQuery:
        """Return the query for a tenant's mode, and its agent's if one is given."""
        fields = ("*",) if agent is None else ("*", f"agent/{agent}")
        state = self._heartbeat, self._announcements
        key = modes_key(tenant, clustered=self._clustered)
        return ModeQuery((tenant, agent), key, fields, *state)

    def store_response(self, query: ModeQuery, values: Sequence[Any], asked_at: float) -> Mode:
        """Cache the responses to a query sent at `asked_at`, and return the mode.

        A Redis without all modes (emptied, new) can only restrict the mode last published.
        """
        if not_ready_error(values) is not None:
            return self.last_known(*query.owner) or UNKNOWN_MODE
        mode = query.read(values)
        complete = query.published(values)
        self._warn(values, complete=complete)
        with self.lock:
            known = self._known.get(query.owner)
            published = mode if complete else known and known.published
            if not complete:
                mode = most_restrictive((mode, published or UNKNOWN_MODE))
            if query.announcements == self._announcements:
                heartbeat = query.heartbeat
                if heartbeat is None or heartbeat is not self._heartbeat:
                    heartbeat = SubscriptionHeartbeat(asked_at)
                self._known[query.owner] = _CachedMode(mode, heartbeat, published)
                self._known.move_to_end(query.owner)
            elif known is not None:
                # A mode changed since the query, and the cached one may be even older (the process
                # may have been suspended). Do not cache the response: the next call queries again.
                return most_restrictive((mode, known.mode))
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
        return mode

    def last_known(self, tenant: str, agent: str | None) -> Mode | None:
        """Return the cached mode, whatever its age; None if there is none."""
        known = self._known.get((tenant, agent))
        return known.mode if known else None

    def _warn(self, values: Sequence[Any], *, complete: bool) -> None:
        """Warn once of a Redis without all modes, until it has them."""
        if isinstance(values[0], Exception):  # `read_mode` has warned of it
            return
        if not complete and self.published:
            _LOG.warning(
                "no worker has published modes to this Redis yet: the last known mode applies, "
                "else %s, so nothing is started early; start the service (`headstart up` or "
                "`headstart worker thresholds`)",
                UNKNOWN_MODE,
            )
        self.published = complete

    def confirm_subscription(self, heartbeat: SubscriptionHeartbeat) -> None:
        """Note that this connection announces changes from now on; query all modes again."""
        with self.lock:
            self._heartbeat = heartbeat
            self._announcements += 1

    def disconnected(self) -> None:
        """Note that no connection announces changes any more."""
        with self.lock:
            self._heartbeat = None

    def apply_announcement(self) -> None:
        """Note a change of some mode: queries sent before it are outdated."""
        with self.lock:
            self._announcements += 1

    def build_refresh_queries(self) -> list[ModeQuery]:
        """Return the queries of all cached modes."""
        with self.lock:
            # A copy, made in one step: a lookup moves its entry to the end without the lock.
            return [self.build_query(*owner) for owner in list(self._known)]
