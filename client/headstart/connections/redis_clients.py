"""Makes Redis clients from URLs: of one server, of a cluster, or of the primary of Sentinels.

A client asks the Sentinels whenever it connects, and so finds a new primary. Each connection reads
its TLS files again, and user and password if the URL came from a file. Forms of URLs:
`headstart.connections.redis_urls`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException, RedisError
from redis.retry import Retry

from headstart.connections.redis_addresses import sentinel_address
from headstart.connections.redis_clusters import connect_cluster, connect_cluster_async
from headstart.connections.redis_logins import with_file_login
from headstart.connections.redis_sentinels import (
    AsyncSentinelPool,
    AsyncSentinels,
    SentinelPool,
    Sentinels,
)
from headstart.connections.redis_tls import read_files_again
from headstart.connections.redis_urls import is_cluster_url, is_sentinel_url

REDIS_ERRORS: Final = (RedisError, RedisClusterException, OSError)
"""What a command raises if Redis refuses it or does not respond."""


def connect(url: str, *, single_connection_client: bool = False, **options: Any) -> Any:
    """Return a client that connects on its first command. `options`: redis-py's, of connections.

    That of a cluster connects at once, and raises one of `REDIS_ERRORS` if no node responds. Raises
    `ValueError` or `TypeError` if the URL cannot be used.
    """
    if is_cluster_url(url):
        return connect_cluster(url, **options)
    if not is_sentinel_url(url):
        address, login = with_file_login(url)
        alone = {"single_connection_client": single_connection_client}
        return Redis.from_url(address, **{**options, **alone, **login})
    pool = _pool(url, options, Sentinels, SentinelPool, Retry(NoBackoff(), 0))
    client = Redis(connection_pool=pool, single_connection_client=single_connection_client)
    client.auto_close_connection_pool = True
    return client


def connect_async(url: str, *, answer_s: float | None = None, **options: Any) -> Any:
    """Return an asyncio client, which connects on its first command; see `connect`.

    `answer_s`: see `AsyncSentinels`.
    """
    if is_cluster_url(url):
        return connect_cluster_async(url, **options)
    if not is_sentinel_url(url):
        address, login = with_file_login(url)
        client = AsyncRedis.from_url(address, **{**options, **login})
        read_files_again(client.connection_pool)
        return client
    retry = AsyncRetry(NoBackoff(), 0)
    sentinels = partial(AsyncSentinels, answer_s=answer_s)
    pool = _pool(url, options, sentinels, AsyncSentinelPool, retry)
    for each in (pool, *(client.connection_pool for client in pool.sentinel_manager.sentinels)):
        read_files_again(each)
    return AsyncRedis.from_pool(pool)


def _pool(url: str, options: dict[str, Any], sentinels: Any, pool: Any, retry: Any) -> Any:
    """Return a pool of connections to the primary; the kinds of both are for threads or asyncio."""
    at = sentinel_address(url)
    asked = sentinels(at.sentinels, sentinel_kwargs=at.sentinel_options(options, retry))
    return pool(at.name, asked, **{**options, **at.options})
