"""Addresses that name several servers, of a Redis Cluster or Sentinels, and connection options."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from headstart.connections.redis_logins import FileLogin, with_file_login
from headstart.connections.redis_options import server_options
from headstart.connections.redis_urls import CLUSTER_URL, SENTINEL_URL, hosts_in

NODE_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
_OF_SENTINELS: Final = ("sentinel_username", "sentinel_password")


class ClusterAddress(NamedTuple):
    """The parts of a cluster's URL. `options`: of connections to nodes, as redis-py takes them."""

    nodes: list[tuple[str, int]]
    options: dict[str, Any]


def cluster_address(url: str) -> ClusterAddress:
    """Return the parts of a cluster's URL. Raises `ValueError`, without repeating the URL."""
    address, login = with_file_login(url)
    found = CLUSTER_URL.fullmatch(address)
    nodes = hosts_in(found["hosts"], NODE_PORT) if found else None
    if found is None or nodes is None:
        raise ValueError("not redis+cluster://HOST:PORT,HOST:PORT")
    return ClusterAddress(nodes, {**server_options(found), **login})


class SentinelAddress(NamedTuple):
    """The parts of a Sentinel URL. `options`: of connections to servers, as redis-py takes them."""

    sentinels: list[tuple[str, int]]
    name: str
    options: dict[str, Any]
    login: dict[str, Any]
    """Options that log in at the Sentinels."""

    def sentinel_options(self, given: dict[str, Any], retry: Any) -> dict[str, Any]:
        """Return the options of connections to Sentinels: TLS, time limits, and their login.

        `given`: options of the caller. `retry`: redis-py's; its default waits for seconds.
        """
        tls = {key: each for key, each in self.options.items() if key.startswith("ssl")}
        wanted = {**given, **self.options}
        limits = {key: each for key, each in wanted.items() if key.startswith("socket_")}
        return {**tls, **limits, **self.login, "retry": retry}


def sentinel_address(url: str) -> SentinelAddress:
    """Return the parts of a Sentinel URL. Raises `ValueError`, without repeating the URL."""
    address, login = with_file_login(url)
    found = SENTINEL_URL.fullmatch(address)
    sentinels = hosts_in(found["hosts"], SENTINEL_PORT) if found else None
    if found is None or sentinels is None:
        raise ValueError("not redis+sentinel://HOST:PORT,HOST:PORT/NAME/DATABASE")
    options = server_options(found, found["database"] or "")
    of_sentinels = {
        key.removeprefix("sentinel_"): options.pop(key) for key in _OF_SENTINELS if key in options
    }
    if login:
        of_sentinels = {"credential_provider": FileLogin(url, "sentinel_")}
    return SentinelAddress(sentinels, found["name"], {**options, **login}, of_sentinels)
