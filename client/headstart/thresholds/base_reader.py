"""What both readers share: the mirrors, and what is made of an answer of Redis, or of none.

Everything but the round trip, and but who runs the follower: headstart.thresholds has those.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

import redis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from headstart.arguments import checks
from headstart.arguments.checks import InvalidArgument, function, identifier, number, refuse_unknown
from headstart.arguments.names import misnamed, refuse_nested
from headstart.arguments.options import names_in
from headstart.events.schema import MAX_IDENTIFIER
from headstart.keys import DEFAULT_LEVELS, level_value
from headstart.scrubbing.masking import masked, needs_encoding
from headstart.thresholds.cache import ThresholdCache
from headstart.thresholds.cache_entries import CacheQuery
from headstart.thresholds.metrics import ReaderCounts, watch
from headstart.thresholds.modes import (
    UNASKED,
    Mode,
    ModeCache,
    ModeQuery,
    mode_from_environment,
    most_restrictive,
    not_ready,
)
from headstart.thresholds.queries import Reply
from headstart.thresholds.subscriber import UpdateSubscriber
from headstart.thresholds.threshold import Threshold
from headstart.thresholds.unreadable import warn_once

PAUSE_S: Final = 0.25
"""Seconds for which an unanswered question keeps a reader from asking again."""
STALENESS_S: Final = 1.0
MIRROR_LIMIT: Final = 10_000

Context = Mapping[str, object]

_LOG = logging.getLogger("headstart.thresholds")


class BaseReader:
    """Everything but the round trip. `mode` is what the environment says."""

    _known: frozenset[str]
    _connect: ClassVar[Callable[..., Any]]
    _retry: ClassVar[type[Retry] | type[AsyncRetry]]

    def __init__(
        self,
        redis_url: str,
        *,
        levels: Sequence[str] = DEFAULT_LEVELS,
        timeout_s: float = 0.05,
        staleness_s: float = STALENESS_S,
        mirror_limit: int = MIRROR_LIMIT,
        clock: Callable[[], float] = time.monotonic,
        **unknown: Any,
    ) -> None:
        refuse_unknown(type(self).__name__, unknown, _OPTIONS)
        checks.redis_url(redis_url)
        number("timeout_s", timeout_s, 0.0, above=True)
        number("staleness_s", staleness_s, 0.0)
        number("mirror_limit", mirror_limit, 1, whole=True)
        function("clock", clock)
        names_in("levels", levels)
        self._url, self._timeout_s, self._clock = redis_url, timeout_s, clock
        self._address = redis_address(redis_url)
        self._ask_again_at: float | None = None  # None: Redis answers
        self._environment = mode_from_environment()
        self._known = frozenset(("workflow_type", "tenant", *levels, *_IDS))
        self._named = self._known | _TOOL
        self._levels, self._limit, self._staleness_s = tuple(levels), mirror_limit, staleness_s
        self._asking: dict[str, Any] = {
            "clock": clock, "staleness_s": staleness_s, "timeout_s": timeout_s
        }  # fmt: skip
        self._counts = ReaderCounts()
        self._begin()
        watch(self, self._counts)

    def _begin(self) -> None:
        """Know nothing, follow nothing."""
        self._mirror = ThresholdCache(
            self._levels,
            limit=self._limit,
            staleness_s=self._staleness_s,
            clock=self._clock,
            counts=self._counts,
        )
        self._hit = self._mirror.hit
        self._modes = ModeCache(limit=self._limit, staleness_s=self._staleness_s, clock=self._clock)
        self._follower: UpdateSubscriber | None = None

    def _given(self, context: Context | None, fields: dict[str, object]) -> Context:
        """Return the context of a call. Raises `ValueError`, `TypeError` naming what is wrong."""
        if fields and not self._known.issuperset(fields):
            self._refuse_misspelt(fields)
        given: Context = fields
        if context is not None:
            if type(context) is not dict:
                checks.mapping("context", context)
            given = {**context, **fields} if fields else context
        if "tenant" in given:
            identifier("tenant", given["tenant"])
        return given

    def check(self, context: Context, placed: Context) -> None:
        """Check what a guess is decided by. `placed`: with what the current scope adds.

        Raises `InvalidArgument` for a value of `placed` that names no context, and for a key of
        `context` that is another spelling of the tenant, a level or an id (`tenant_id`, `user`):
        it would be answered for another tenant or a coarser context. Other keys are content
        (`customer_id`), and pass.
        """
        if not self._known.issuperset(context):
            self._refuse_misnamed(context)
        self._check_values(placed)

    def _refuse_misnamed(self, context: Context) -> None:
        """Raise `InvalidArgument` for a key that would not count as it is meant."""
        if wrong := misnamed(tuple(context), self._known):
            raise InvalidArgument(
                f"the context has no key {wrong[0]!r} that counts; did you mean {wrong[1]!r}?"
            )
        refuse_nested(context)

    def _tool(self, context: Context, tool: str | None) -> str | None:
        """Return whose overrides apply, which the context may say as well as the call.

        Raises `InvalidArgument` for a key that would not count as it is meant, and for two tools.
        """
        self._refuse_misnamed(context)
        for name in _TOOL:
            named = None if name in self._known else context.get(name)
            if named is None:
                continue
            identifier(name, named)
            if tool is not None and named != tool:
                raise InvalidArgument(
                    f"the tool is {tool!r:.100}, but the context has {name} {named!r:.100}; "
                    "name it once"
                )
            tool = str(named)
        if tool is None and (wrong := misnamed(tuple(context), self._named)):
            raise InvalidArgument(
                f"the context has no key {wrong[0]!r} that counts; did you mean {wrong[1]!r}?"
            )
        return tool

    def _refuse_misspelt(self, fields: dict[str, object]) -> None:
        """Raise `InvalidArgument` for a keyword that is nearly one which counts."""
        for name in fields:
            plural = name not in self._known and name.removesuffix("s") in self._known
            if wrong := misnamed((name,), self._known):
                meant = wrong[1]
            elif plural:
                meant = name.removesuffix("s")
            else:
                continue
            callee = f"{type(self).__name__}.get"
            raise InvalidArgument(f"{callee}() has no argument {name!r}; did you mean {meant!r}?")

    def _check_values(self, given: Context) -> None:
        """Raise `InvalidArgument` for a value that names no context, and would be left out."""
        for name in ("workflow_type", "tenant"):
            if name in given or name == "workflow_type":
                identifier(name, given.get(name))
        for name, value in given.items():
            if name in _IDS:
                identifier(name, value, none=True)
            elif name in self._levels and value is not None and level_value(value) is None:
                raise InvalidArgument(
                    f"{name} must be a string of at most {MAX_IDENTIFIER} characters, a number or "
                    f"a boolean, not {value!r:.100}"
                )

    def _refuse_of_mode(self, unknown: dict[str, object]) -> None:
        """Raise `TypeError` for keywords that `mode` lacks."""
        refuse_unknown(f"{type(self).__name__}.mode", unknown, ("tenant", "agent_id"))

    def _follow(self) -> None:
        """Start the follower where there is none, and have it look at what is to be followed."""
        raise NotImplementedError

    def _connecting(self, **options: Any) -> Callable[[], Any]:
        """Return what makes a client of redis-py, without a reference to this reader."""
        return partial(
            self._connect,
            self._url,
            socket_timeout=self._timeout_s,
            socket_connect_timeout=self._timeout_s,
            # a connection that Redis has closed meanwhile is opened anew, once and at once
            retry=self._retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
            **options,
        )

    def _new_follower(self) -> UpdateSubscriber:
        return UpdateSubscriber(
            self._url, self._mirror, self._modes, timeout_s=self._timeout_s, address=self._address
        )

    def _ask(self, given: Context, tool: str | None) -> Threshold | CacheQuery:
        """Return the answer, where one can be given without asking Redis; else what to ask."""
        self._check_values(given)
        identifier("tool", tool, none=True)
        question = self._mirror.question(given, tool)
        if isinstance(question, CacheQuery) and self._pausing():
            return self._unanswered(question, None)
        return question

    def _ask_default(self, given: Context) -> Threshold | CacheQuery:
        """Return the tenant's default, where it can be told without asking Redis; else ask."""
        tenant = given.get("tenant")
        question = self._mirror.default_question("default" if tenant is None else str(tenant))
        if isinstance(question, CacheQuery) and self._pausing():
            return self._mirror.last_known(question)  # counted with the context's own question
        return question

    def _told(self, asked: CacheQuery, reply: Reply) -> Threshold:
        """Return the answer in a reply, which may be to the same question of another caller."""
        if reply.values is None:
            return self._unanswered(asked, reply.error)
        assert isinstance(reply.question, CacheQuery)
        question = reply.question._replace(tool=asked.tool)
        return self._answered(question, reply.values, reply.asked_at)

    def _mode_told(self, asked: ModeQuery, reply: Reply) -> Mode:
        if reply.values is None:
            return self._mode_unanswered(asked, reply.error)
        assert isinstance(reply.question, ModeQuery)
        return self._mode_answered(reply.question, reply.values, reply.asked_at)

    def _answered(
        self, question: CacheQuery, values: Sequence[bytes | None], asked_at: float
    ) -> Threshold:
        self._recovered()
        self._counts.misses += 1
        self._counts.miss_seconds.observe(self._clock() - asked_at)
        answer = self._mirror.filled(question, values, asked_at)
        if self._staleness_s and (self._follower is None or self._mirror.unfollowed):
            self._follow()
        return answer

    def _unanswered(self, question: CacheQuery, error: Exception | None) -> Threshold:
        """Return the last known; `error` is None where the question was not sent."""
        if isinstance(error, redis.ResponseError) and str(error).startswith("WRONGTYPE"):
            # Of this key only: no reason to stop asking for others.
            warn_once(question.key, str(error), "what was last known holds; delete the key")
            self._counts.failed += 1
        elif error is not None:
            self._failed(error)
        self._counts.stale += 1
        return self._mirror.last_known(question)

    def _ask_mode(self, tenant: str, agent_id: str | None) -> Mode | ModeQuery:
        """Return the mode, where it can be told without asking Redis; else what to ask."""
        identifier("tenant", tenant)
        identifier("agent_id", agent_id, none=True)
        if self._environment == "off":
            return "off"
        known = self._modes.hit(tenant, agent_id)
        if known is not None:
            return most_restrictive((self._environment, known))
        question = self._modes.question(tenant, agent_id)
        return self._mode_unanswered(question, None) if self._pausing() else question

    def _mode_answered(self, question: ModeQuery, values: Sequence[Any], asked_at: float) -> Mode:
        if (error := not_ready(values)) is not None:
            return self._mode_unanswered(question, error)
        self._recovered()
        known = self._modes.filled(question, values, asked_at)
        if self._staleness_s and self._follower is None:
            self._follow()
        return most_restrictive((self._environment, known))

    def _mode_unanswered(self, question: ModeQuery, error: Exception | None) -> Mode:
        """Return the last known; where nothing is, `UNASKED`, as the kill switch may be set."""
        if error is not None:
            self._failed(error)
        known = self._modes.last_known(*question.owner) or UNASKED
        return most_restrictive((self._environment, known))

    def _pausing(self) -> bool:
        return self._ask_again_at is not None and self._clock() < self._ask_again_at

    def _recovered(self) -> None:
        if self._ask_again_at is not None:
            self._ask_again_at = None
            _LOG.info("Redis at %s answers again", self._address)

    def _failed(self, error: Exception) -> None:
        """Pause; warn at the beginning of an outage only."""
        if self._ask_again_at is None:
            message = "Redis at %s does not answer (%s): using what is known until it does"
            _LOG.warning(message, self._address, error)
        self._ask_again_at = self._clock() + PAUSE_S
        self._counts.failed += 1

    def stats(self) -> dict[str, int]:
        """Return counts since the beginning, as `headstart.thresholds.metrics` explains them."""
        return self._counts.stats()


_OPTIONS: Final = frozenset(BaseReader.__init__.__kwdefaults__ or ())
_IDS: Final = ("workflow_id", "task_id", "user_id", "agent_id", "session_id")
"""Fields of a context that are known by name, whether or not they are levels."""
_TOOL: Final = frozenset(("tool", "tool_id"))
"""What the tool may be called whose overrides apply, where `tool_id` is no level."""
BaseReader._known = frozenset(("workflow_type", "tenant", *DEFAULT_LEVELS, *_IDS))


_NO_URL: Final = "an address that is no URL"


def redis_address(url: str) -> str:
    """Return `host:port/db` of a Redis URL (or a socket's path), fit to be printed."""
    if needs_encoding(url):
        return masked(url)
    try:
        parts = urlsplit(url)
        server = f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    except ValueError:  # no port, or no host, can be told from the rest
        return _NO_URL
    if not url.lower().startswith(("redis://", "rediss://", "unix://")):
        return _NO_URL  # any part of it may be a password
    return parts.path if parts.scheme == "unix" else server + parts.path
