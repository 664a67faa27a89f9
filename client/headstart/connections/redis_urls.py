"""Redis URLs: of one server, of Sentinels that name the primary, or of a cluster. Pure.

    redis+sentinel://USER:PASSWORD@SENTINEL:26379,SENTINEL:26379/NAME/DATABASE
    redis+cluster://USER:PASSWORD@NODE:6379,NODE:6379

`rediss+sentinel://` uses TLS for Sentinels and servers, `rediss+cluster://` for all nodes. User,
password and the options after `?` are the servers', as in redis-py's URLs; `sentinel_username` and
`sentinel_password` the Sentinels'. Some nodes of a cluster are enough: they name the others.
"""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = ("redis://", "rediss://", "unix://")
_SENTINEL: Final = ("redis+sentinel://", "rediss+sentinel://")
_CLUSTER: Final = ("redis+cluster://", "rediss+cluster://")
SCHEMES: Final = (*_PLAIN, *_SENTINEL, *_CLUSTER)
"""The beginnings of Redis URLs, in lower case."""
SENTINEL_URL: Final = re.compile(
    r"(?P<scheme>rediss?)\+sentinel://(?:(?P<login>[^/?#]*)@)?(?P<hosts>[^/?#@]+)"
    r"/(?P<name>[^/?#]+)(?:/(?P<database>[0-9]*))?(?:\?(?P<query>[^#]*))?"
)
CLUSTER_URL: Final = re.compile(
    r"(?P<scheme>rediss?)\+cluster://(?:(?P<login>[^/?#]*)@)?(?P<hosts>[^/?#@]+)"
    r"(?:/0?)?(?:\?(?P<query>[^#]*))?"
)
_HOST: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:\s]+))(?::(?P<port>[0-9]{1,5}))?"
)


def is_sentinel_url(url: str) -> bool:
    """Return whether a URL names Sentinels."""
    return url.lower().startswith(_SENTINEL)


def is_cluster_url(url: str) -> bool:
    """Return whether a URL names nodes of a cluster."""
    return url.lower().startswith(_CLUSTER)


def hosts_in(hosts: str, port: int) -> list[tuple[str, int]] | None:
    """Return the hosts and ports of a list; None if it cannot be parsed. `port`: the default.

    Raises `ValueError` for a port that no server can have.
    """
    found = [_HOST.fullmatch(each) for each in hosts.split(",")]
    parsed = [(each["six"] or each["host"], int(each["port"] or port)) for each in found if each]
    if len(parsed) < len(found):
        return None
    if not all(0 < each < 65_536 for _host, each in parsed):
        raise ValueError("a port is not from 1 to 65535")
    return parsed


def sentinel_servers(url: str) -> str | None:
    """Return `host:port,host:port/name/database` of a Sentinel URL; None if it cannot be parsed."""
    found = SENTINEL_URL.fullmatch(url)
    if found is None:
        return None
    return "/".join(filter(None, (found["hosts"], found["name"], found["database"])))


def cluster_servers(url: str) -> str | None:
    """Return `host:port,host:port` of a cluster's URL; None if it cannot be parsed."""
    found = CLUSTER_URL.fullmatch(url)
    return None if found is None else found["hosts"]
