"""Rollout modes: off, observe or act; the kill switch and the way to switch on step by step.

The most restrictive one wins: of the environment, everybody's, the tenant's and the agent's. What
is not exactly one of the three, or cannot be read, is off: a kill switch must not fail open.
Here is also what is known of them, without I/O. Setting them is the service's.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

from redis.exceptions import (
    BusyLoadingError,
    ClusterDownError,
    ReadOnlyError,
    TryAgainError,
)

from headstart.keys import MODES, PUBLISHED, PUBLISHING, modes_key
from headstart.thresholds.heartbeat import SubscriptionHeartbeat
from headstart.thresholds.unreadable import warn_once

Mode = Literal["off", "observe", "act"]
"""off: no guess is looked at. observe: decisions are made and logged, none is acted on."""

RESTRICTIVE_FIRST: Final[tuple[Mode, ...]] = ("off", "observe", "act")

UNASKED: Final[Mode] = "observe"
"""Until a Redis with all modes has answered once, as the kill switch may be set: only logged."""

_LOG = logging.getLogger("headstart.thresholds")

_PASSING: Final = (BusyLoadingError, ClusterDownError, ReadOnlyError, TryAgainError)
"""Errors of a server that is not ready: as if Redis did not answer."""


def mode_from_environment() -> Mode:
    """Return HEADSTART_MODE, act where it is not set. Raises `ValueError` naming the modes."""
    named = os.environ.get("HEADSTART_MODE") or "act"
    if named not in RESTRICTIVE_FIRST:
        raise ValueError(f"HEADSTART_MODE must be off, observe or act, not {named!r:.64}")
    return named


def known_mode(mode: object) -> Mode:
    """Return a mode; off for what is none, of a newer version for example."""
    for known in RESTRICTIVE_FIRST:
        if isinstance(mode, str) and mode == known:
            return known
    return "off"


def most_restrictive(modes: Iterable[str]) -> Mode:
    """Return the most restrictive of some modes, act of none; what is no mode counts as off."""
    places = [RESTRICTIVE_FIRST.index(known_mode(each)) for each in modes]
    return RESTRICTIVE_FIRST[min(places, default=-1)]


def read_mode(stored: object, where: str) -> Mode:
    """Return the mode that a field of Redis holds; off, with a warning, where it holds none.

    `stored` is the field's bytes, or the error in its place. `where`: for the warning.
    """
    text = stored.decode(errors="replace") if isinstance(stored, bytes) else stored
    mode = known_mode(text)
    if mode != text:
        shown = str(text) if isinstance(text, Exception) else text
        warn_once(f"the mode {where}", shown, "off holds; `headstart config set mode` sets another")
    return mode


class ModeQuery(NamedTuple):
    """What to ask Redis: two fields of everybody's hash, and these fields of a tenant's.

    Everybody's are `*` and the one that says whether this Redis has all modes.
    """

    owner: tuple[str, str | None]
    key: str
    fields: tuple[str, ...]
    line: SubscriptionHeartbeat | None
    announced: int

    def through(self, pipeline: Any) -> Any:
        """Return a pipeline that asks it, in two commands.

        To be executed with `raise_on_error=False`: an error in an answer's place is read as off.
        """
        return pipeline.hmget(MODES, "*", PUBLISHED).hmget(self.key, self.fields)

    @staticmethod
    def published(values: Sequence[Any]) -> bool:
        """Return whether the answers come from a Redis to which all modes were published.

        Where not, a mode that is absent may be one that was lost.
        """
        everybody = values[0]
        if isinstance(everybody, Exception):
            return False
        marker = everybody[1]
        return isinstance(marker, bytes) and not marker.startswith(PUBLISHING)

    def read(self, values: Sequence[Any]) -> Mode:
        """Return the most restrictive mode in the answers to the two commands."""
        everybody, others = values
        if not isinstance(everybody, Exception):
            everybody = everybody[0]
        if isinstance(others, Exception):
            others = [others] * len(self.fields)
        places = [(MODES, "*"), *((self.key, field) for field in self.fields)]
        return most_restrictive(
            read_mode(stored, f"{field} of {key}")
            for (key, field), stored in zip(places, (everybody, *others), strict=True)
            if stored is not None
        )


def not_ready(values: Sequence[Any]) -> Exception | None:
    """Return the error in some answers that says that Redis is not ready to answer; else None."""
    return next((each for each in values if isinstance(each, _PASSING)), None)


class _Known(NamedTuple):
    """What is known of an owner's mode. `published`: the last one of a Redis with all modes."""

    mode: Mode
    line: SubscriptionHeartbeat
    published: Mode | None


class ModeCache:
    """The modes of the tenants and agents that were asked for, the last used `limit` of them."""

    def __init__(self, *, limit: int, staleness_s: float, clock: Callable[[], float]) -> None:
        self._limit, self._staleness_s, self._clock = limit, staleness_s, clock
        self._known: OrderedDict[tuple[str, str | None], _Known] = OrderedDict()
        self._line: SubscriptionHeartbeat | None = None
        self._announced = 0
        self.published = True
        """Whether Redis had all modes when it was last asked."""
        self.lock = threading.Lock()

    def hit(self, tenant: str, agent: str | None) -> Mode | None:
        """Return a mode that Redis has confirmed within the bound."""
        try:
            mode, line, _ = self._known[tenant, agent]
            self._known.move_to_end((tenant, agent))
        except (KeyError, TypeError):
            return None
        return mode if self._clock() - line.heard <= self._staleness_s else None

    def question(self, tenant: str, agent: str | None) -> ModeQuery:
        """Return what to ask."""
        fields = ("*",) if agent is None else ("*", f"agent/{agent}")
        return ModeQuery((tenant, agent), modes_key(tenant), fields, self._line, self._announced)

    def filled(self, question: ModeQuery, values: Sequence[Any], asked_at: float) -> Mode:
        """Keep what a question's pipeline gave, asked at `asked_at`, and return the mode.

        A Redis without all modes (emptied, new) can only restrict what was last published.
        """
        if not_ready(values) is not None:
            return self.last_known(*question.owner) or UNASKED
        mode = question.read(values)
        complete = question.published(values)
        self._warn(values, complete=complete)
        with self.lock:
            known = self._known.get(question.owner)
            published = mode if complete else known and known.published
            if not complete:
                mode = most_restrictive((mode, published or UNASKED))
            if question.announced == self._announced:
                followed = question.line is not None and question.line is self._line
                line = (
                    question.line if followed and question.line else SubscriptionHeartbeat(asked_at)
                )
                self._known[question.owner] = _Known(mode, line, published)
                self._known.move_to_end(question.owner)
            elif known is not None:
                # Something changed since it was asked, and what was known may be older yet: the
                # process may have stood still. The answer is not kept; the next call asks again.
                return most_restrictive((mode, known.mode))
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
        return mode

    def last_known(self, tenant: str, agent: str | None) -> Mode | None:
        """Return what was last known, however long ago; None where nothing ever was."""
        known = self._known.get((tenant, agent))
        return known.mode if known else None

    def _warn(self, values: Sequence[Any], *, complete: bool) -> None:
        """Warn of a Redis without all modes, once until it has them."""
        if isinstance(values[0], Exception):  # said otherwise: the mode cannot be read
            return
        if not complete and self.published:
            _LOG.warning(
                "no worker has published modes to this Redis yet: what was last known holds, else "
                "%s, so that nothing is started; start the service (`headstart up` or `headstart "
                "worker thresholds`)",
                UNASKED,
            )
        self.published = complete

    def subscribed(self, line: SubscriptionHeartbeat) -> None:
        """Note that changes are announced on `line` from now on; ask all of `held` again."""
        with self.lock:
            self._line = line
            self._announced += 1

    def lost(self) -> None:
        """Note that no line announces changes any more."""
        with self.lock:
            self._line = None

    def changed(self) -> None:
        """Note an announcement: what was asked before it does not count any more."""
        with self.lock:
            self._announced += 1

    def held(self) -> list[ModeQuery]:
        """Return the questions whose answers are known, to be asked again."""
        with self.lock:
            # A copy, made in one step: a hit moves its entry to the end without the lock.
            return [self.question(*owner) for owner in list(self._known)]
