"""Base of both readers: their caches, argument checks, and how responses become answers.

The round trips and the subscriber's thread or task are in `headstart.thresholds.reader`.
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
from headstart.connections.redis_addresses import cluster_address
from headstart.connections.redis_slots import SlotMap
from headstart.connections.redis_urls import (
    SCHEMES,
    cluster_servers,
    is_cluster_url,
    is_sentinel_url,
    sentinel_servers,
)
from headstart.events.schema import MAX_IDENTIFIER
from headstart.keys import DEFAULT_LEVELS, level_value
from headstart.scrubbing.masking import masked, needs_encoding
from headstart.thresholds.cache import ThresholdCache
from headstart.thresholds.cache_entries import CacheQuery
from headstart.thresholds.metrics import ReaderCounts, watch
from headstart.thresholds.modes import (
    UNKNOWN_MODE,
    Mode,
    ModeCache,
    ModeQuery,
    mode_from_environment,
    most_restrictive,
    not_ready_error,
)
from headstart.thresholds.outages import Outages
from headstart.thresholds.queries import Query, Reply, server_names
from headstart.thresholds.subscriber import UpdateSubscriber
from headstart.thresholds.threshold import Threshold
from headstart.thresholds.unreadable import warn_once

STALENESS_S: Final = 1.0
MIRROR_LIMIT: Final = 10_000

Context = Mapping[str, object]

_LOG = logging.getLogger("headstart.thresholds")


class BaseReader:
    """Everything but the round trips."""

    _known: frozenset[str]
    _connect: ClassVar[Callable[..., Any]]
    _nodes: ClassVar[Callable[..., Any]]
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
        self._slots: SlotMap | None = None  # of a cluster
        if is_cluster_url(redis_url):
            self._slots = SlotMap(cluster_address(redis_url).nodes)
        self._server_of = server_names(self._slots)
        self._outages = Outages(clock)
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
        """Start with empty caches and no subscriber."""
        self._cache = ThresholdCache(
            self._levels,
            limit=self._limit,
            staleness_s=self._staleness_s,
            clock=self._clock,
            counts=self._counts,
        )
        self._lookup = self._cache.lookup
        self._modes = ModeCache(
            limit=self._limit, staleness_s=self._staleness_s, clock=self._clock,
            clustered=is_cluster_url(self._url),
        )  # fmt: skip
        self._subscriber: UpdateSubscriber | None = None

    def _given(self, context: Context | None, fields: dict[str, object]) -> Context:
        """Return the context of a call. Raises `InvalidArgument` naming what is wrong."""
        if fields and not self._known.issuperset(fields):
            self._refuse_misspelled(fields)
        given: Context = fields
        if context is not None:
            if type(context) is not dict:
                checks.mapping("context", context)
            given = {**context, **fields} if fields else context
        if "tenant" in given:
            identifier("tenant", given["tenant"])
        return given

    def check(self, context: Context, complete: Context) -> None:
        """Check the context of a guess. `complete`: with the fields of the current scope.

        Raises `InvalidArgument` for a value of `complete` that cannot be part of a context, and for
        a key of `context` that is another spelling of the tenant, a level or an id (`tenant_id`,
        `user`): the answer would be another tenant's or a coarser context's. Other keys
        (`customer_id`) are content.
        """
        if not self._known.issuperset(context):
            self._refuse_misnamed(context)
        self._check_values(complete)

    def _refuse_misnamed(self, context: Context) -> None:
        """Raise `InvalidArgument` for a misspelled key, or a context within the context."""
        _refuse(misnamed(tuple(context), self._known))
        refuse_nested(context)

    def _tool(self, context: Context, tool: str | None) -> str | None:
        """Return the tool whose overrides apply: that of the call, or of the context.

        Raises `InvalidArgument` for a misspelled key, and for two different tools.
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
        if tool is None:
            _refuse(misnamed(tuple(context), self._named))
        return tool

    def _refuse_misspelled(self, fields: dict[str, object]) -> None:
        """Raise `InvalidArgument` for a misspelled keyword."""
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
        """Raise `InvalidArgument` for a value that cannot be part of a context."""
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

    def _refuse_mode_keywords(self, unknown: dict[str, object]) -> None:
        """Raise `InvalidArgument` for keywords that `mode` does not have."""
        refuse_unknown(f"{type(self).__name__}.mode", unknown, ("tenant", "agent_id"))

    def _follow(self) -> None:
        """Start the subscriber if needed, and have it subscribe to newly cached hashes."""
        raise NotImplementedError

    def _client_factory(self, **options: Any) -> Callable[[], Any]:
        """Return a factory of redis-py clients that holds no reference to this reader."""
        if self._slots is not None:
            options["slots"] = self._slots
        return partial(
            self._connect if self._slots is None else self._nodes,
            self._url,
            socket_timeout=self._timeout_s,
            socket_connect_timeout=self._timeout_s,
            # One immediate retry: Redis may have closed an idle connection.
            retry=self._retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
            **options,
        )

    def _new_subscriber(self) -> UpdateSubscriber:
        return UpdateSubscriber(
            self._url, self._cache, self._modes, timeout_s=self._timeout_s, address=self._address
        )

    def _ask(self, given: Context, tool: str | None) -> Threshold | CacheQuery:
        """Return the answer if it needs no round trip, else the query to send."""
        self._check_values(given)
        identifier("tool", tool, none=True)
        query = self._cache.build_query(given, tool)
        if isinstance(query, CacheQuery) and self._outages.pausing(self._server_of(query)):
            return self._answer_without_redis(query, None)
        return query

    def _ask_default(self, given: Context) -> Threshold | CacheQuery:
        """Return the tenant's default if it needs no round trip, else the query to send."""
        tenant = given.get("tenant")
        query = self._cache.build_default_query("default" if tenant is None else str(tenant))
        if isinstance(query, CacheQuery) and self._outages.pausing(self._server_of(query)):
            return self._cache.last_known(query)  # counted with the context's own query
        return query

    def _read_reply(self, asked: CacheQuery, reply: Reply) -> Threshold:
        """Return the answer in a reply, which may belong to the same query of another caller."""
        if reply.values is None:
            return self._answer_without_redis(asked, reply.error)
        assert isinstance(reply.query, CacheQuery)
        query = reply.query._replace(tool=asked.tool)
        return self._store_answer(query, reply.values, reply.asked_at)

    def _read_mode_reply(self, asked: ModeQuery, reply: Reply) -> Mode:
        if reply.values is None:
            return self._mode_without_redis(asked, reply.error)
        assert isinstance(reply.query, ModeQuery)
        return self._store_mode(reply.query, reply.values, reply.asked_at)

    def _store_answer(
        self, query: CacheQuery, values: Sequence[bytes | None], asked_at: float
    ) -> Threshold:
        self._note_recovery(query)
        self._counts.misses += 1
        self._counts.miss_seconds.observe(self._clock() - asked_at)
        answer = self._cache.store_response(query, values, asked_at)
        if self._staleness_s and (self._subscriber is None or self._cache.pending_subscriptions):
            self._follow()
        return answer

    def _answer_without_redis(self, query: CacheQuery, error: Exception | None) -> Threshold:
        """Return the last known answer; `error` is None if the query was not sent."""
        if isinstance(error, redis.ResponseError) and str(error).startswith("WRONGTYPE"):
            # An error of this key only: no reason to pause queries of others.
            warn_once(query.key, str(error), "the last known value applies; delete the key")
            self._counts.failed += 1
        elif error is not None:
            self._note_failure(query, error)
        self._counts.stale += 1
        return self._cache.last_known(query)

    def _ask_mode(self, tenant: str, agent_id: str | None) -> Mode | ModeQuery:
        """Return the mode if it needs no round trip, else the query to send."""
        identifier("tenant", tenant)
        identifier("agent_id", agent_id, none=True)
        if self._environment == "off":
            return "off"
        known = self._modes.lookup(tenant, agent_id)
        if known is not None:
            return most_restrictive((self._environment, known))
        query = self._modes.build_query(tenant, agent_id)
        if self._outages.pausing(self._server_of(query)):
            return self._mode_without_redis(query, None)
        return query

    def _store_mode(self, query: ModeQuery, values: Sequence[Any], asked_at: float) -> Mode:
        if (error := not_ready_error(values)) is not None:
            return self._mode_without_redis(query, error)
        self._note_recovery(query)
        known = self._modes.store_response(query, values, asked_at)
        if self._staleness_s and self._subscriber is None:
            self._follow()
        return most_restrictive((self._environment, known))

    def _mode_without_redis(self, query: ModeQuery, error: Exception | None) -> Mode:
        """Return the last known mode, else `UNKNOWN_MODE`, as the kill switch may be set."""
        if error is not None:
            self._note_failure(query, error)
        known = self._modes.last_known(*query.owner) or UNKNOWN_MODE
        return most_restrictive((self._environment, known))

    def _note_recovery(self, query: Query) -> None:
        if self._outages.recovered(self._server_of(query)):
            _LOG.info("Redis at %s responds again", self._address)

    def _note_failure(self, query: Query, error: Exception) -> None:
        """Pause queries to the server; warn only when an outage begins."""
        if self._outages.failed(self._server_of(query)):
            message = "Redis at %s does not respond (%s): using cached values until it does"
            _LOG.warning(message, self._address, error)
        self._counts.failed += 1

    def stats(self) -> dict[str, int]:
        """Return counts since construction, by the names in `headstart.thresholds.metrics`."""
        return self._counts.stats()


_OPTIONS: Final = frozenset(BaseReader.__init__.__kwdefaults__ or ())
_IDS: Final = ("workflow_id", "task_id", "user_id", "agent_id", "session_id")
"""Fields of a context that are known, whether or not they are levels."""
_TOOL: Final = frozenset(("tool", "tool_id"))
"""Keys that may name the tool whose overrides apply, if `tool_id` is not a level."""
BaseReader._known = frozenset(("workflow_type", "tenant", *DEFAULT_LEVELS, *_IDS))


_NO_URL: Final = "an invalid URL"


def _refuse(misspelled: tuple[str, str] | None) -> None:
    if misspelled is not None:
        name, meant = misspelled
        raise InvalidArgument(f"the context has an unused key {name!r}; did you mean {meant!r}?")


def redis_address(url: str) -> str:
    """Return `host:port/db` of a Redis URL (or a socket's path), safe to print."""
    if needs_encoding(url):
        return masked(url)
    if is_sentinel_url(url):
        return sentinel_servers(url) or _NO_URL
    if is_cluster_url(url):
        return cluster_servers(url) or _NO_URL
    try:
        parts = urlsplit(url)
        server = f"{parts.hostname or 'localhost'}:{parts.port or 6379}"
    except ValueError:  # the port or host cannot be parsed
        return _NO_URL
    if not url.lower().startswith(SCHEMES):
        return _NO_URL  # any part of it may be a password
    return parts.path if parts.scheme == "unix" else server + parts.path
