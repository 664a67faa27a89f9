"""Makes Redis clients from URLs: of one server, or of the primary that Sentinels name.

    redis+sentinel://USER:PASSWORD@SENTINEL:26379,SENTINEL:26379/NAME/DATABASE

`rediss+sentinel://` uses TLS for Sentinels and servers. User, password and the options after `?`
are the servers', as in redis-py's URLs; `sentinel_username` and `sentinel_password` the Sentinels'.
A client asks the Sentinels whenever it connects, and so finds a new primary.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import redis
    import redis.asyncio

SENTINEL_PORT: Final = 26379
_PLAIN: Final = ("redis://", "rediss://", "unix://")
_SENTINEL: Final = ("redis+sentinel://", "rediss+sentinel://")
SCHEMES: Final = (*_PLAIN, *_SENTINEL)
"""The beginnings of Redis URLs, in lower case."""
_URL: Final = re.compile(
    r"(?P<scheme>rediss?)\+sentinel://(?:(?P<login>[^/?#]*)@)?(?P<hosts>[^/?#@]+)"
    r"/(?P<name>[^/?#]+)(?:/(?P<database>[0-9]*))?(?:\?(?P<query>[^#]*))?"
)
_HOST: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:\s]+))(?::(?P<port>[0-9]{1,5}))?"
)
_OF_SENTINELS: Final = ("sentinel_username", "sentinel_password")


class SentinelAddress(NamedTuple):
    """The parts of a Sentinel URL. `options`: of connections to servers, as redis-py takes them."""

    sentinels: list[tuple[str, int]]
    name: str
    options: dict[str, Any]
    login: dict[str, str]
    """User and password for the Sentinels."""

    def sentinel_options(self, given: dict[str, Any], retry: Any) -> dict[str, Any]:
        """Return the options of connections to Sentinels: TLS, time limits, and their login.

        `given`: options of the caller. `retry`: redis-py's; its default waits for seconds.
        """
        tls = {key: each for key, each in self.options.items() if key.startswith("ssl")}
        wanted = {**given, **self.options}
        limits = {key: each for key, each in wanted.items() if key.startswith("socket_")}
        return {**tls, **limits, **self.login, "retry": retry}


def is_sentinel_url(url: str) -> bool:
    """Return whether a URL names Sentinels."""
    return url.lower().startswith(_SENTINEL)


def sentinel_servers(url: str) -> str | None:
    """Return `host:port,host:port/name/database` of a Sentinel URL; None if it cannot be parsed."""
    found = _URL.fullmatch(url)
    if found is None:
        return None
    return "/".join(filter(None, (found["hosts"], found["name"], found["database"])))


def sentinel_address(url: str) -> SentinelAddress:
    """Return the parts of a Sentinel URL. Raises `ValueError`, without repeating the URL."""
    import redis.connection

    found = _URL.fullmatch(url)
    hosts = [_HOST.fullmatch(each) for each in found["hosts"].split(",")] if found else []
    if found is None or not all(hosts):
        raise ValueError("not redis+sentinel://HOST:PORT,HOST:PORT/NAME/DATABASE")
    login = f"{found['login']}@" if found["login"] else ""
    query = f"?{found['query']}" if found["query"] else ""
    parse: Any = redis.connection.parse_url
    options: dict[str, Any] = parse(
        f"{found['scheme']}://{login}server/{found['database'] or ''}{query}"
    )
    for unused in ("host", "connection_class"):
        options.pop(unused, None)
    options["ssl"] = found["scheme"] == "rediss"
    of_sentinels = {
        key.removeprefix("sentinel_"): options.pop(key) for key in _OF_SENTINELS if key in options
    }
    sentinels = [
        (each["six"] or each["host"], int(each["port"] or SENTINEL_PORT)) for each in hosts if each
    ]
    if not all(0 < port < 65_536 for _host, port in sentinels):
        raise ValueError("a port is not from 1 to 65535")
    return SentinelAddress(sentinels, found["name"], options, of_sentinels)


def connect(url: str, *, single_connection_client: bool = False, **options: Any) -> redis.Redis:
    """Return a client that connects on its first command. `options`: redis-py's, of connections.

    Raises `ValueError` or `TypeError` if the URL cannot be used.
    """
    import redis
    import redis.sentinel
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    if not is_sentinel_url(url):
        return redis.Redis.from_url(
            url, single_connection_client=single_connection_client, **options
        )
    at = sentinel_address(url)
    make: Any = redis.sentinel.Sentinel
    sentinels = make(
        at.sentinels, sentinel_kwargs=at.sentinel_options(options, Retry(NoBackoff(), 0))
    )
    kind = _closing(redis.sentinel.SentinelConnectionPool)
    pool = kind(at.name, sentinels, **{**options, **at.options})
    client = redis.Redis(connection_pool=pool, single_connection_client=single_connection_client)
    client.auto_close_connection_pool = True
    return client


def connect_async(url: str, **options: Any) -> redis.asyncio.Redis:
    """Return an asyncio client; see `connect`."""
    import redis.asyncio
    import redis.asyncio.sentinel
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff

    if not is_sentinel_url(url):
        return redis.asyncio.Redis.from_url(url, **options)
    at = sentinel_address(url)
    make: Any = redis.asyncio.sentinel.Sentinel
    sentinels = make(
        at.sentinels, sentinel_kwargs=at.sentinel_options(options, Retry(NoBackoff(), 0))
    )
    kind = _closing_async(redis.asyncio.sentinel.SentinelConnectionPool)
    pool = kind(at.name, sentinels, **{**options, **at.options})
    return redis.asyncio.Redis.from_pool(pool)


@cache
def _closing(kind: Any) -> Any:
    """Return a kind of pool that also closes its connections to Sentinels when it is closed."""

    class Closing(kind):  # type: ignore[misc]
        def disconnect(self, inuse_connections: bool = True) -> None:
            super().disconnect(inuse_connections)
            if inuse_connections:
                for each in self.sentinel_manager.sentinels:
                    each.close()

    return Closing


@cache
def _closing_async(kind: Any) -> Any:
    class Closing(kind):  # type: ignore[misc]
        async def disconnect(self, inuse_connections: bool = True) -> None:
            await super().disconnect(inuse_connections)
            if inuse_connections:
                for each in self.sentinel_manager.sentinels:
                    await each.aclose()

    return Closing
