"""Redis URLs: of one server, or of Sentinels that name the primary. Pure.

    redis+sentinel://USER:PASSWORD@SENTINEL:26379,SENTINEL:26379/NAME/DATABASE

`rediss+sentinel://` uses TLS for Sentinels and servers. User, password and the options after `?`
are the servers', as in redis-py's URLs; `sentinel_username` and `sentinel_password` the Sentinels'.
"""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = ("redis://", "rediss://", "unix://")
_SENTINEL: Final = ("redis+sentinel://", "rediss+sentinel://")
SCHEMES: Final = (*_PLAIN, *_SENTINEL)
"""The beginnings of Redis URLs, in lower case."""
SENTINEL_URL: Final = re.compile(
    r"(?P<scheme>rediss?)\+sentinel://(?:(?P<login>[^/?#]*)@)?(?P<hosts>[^/?#@]+)"
    r"/(?P<name>[^/?#]+)(?:/(?P<database>[0-9]*))?(?:\?(?P<query>[^#]*))?"
)


def is_sentinel_url(url: str) -> bool:
    """Return whether a URL names Sentinels."""
    return url.lower().startswith(_SENTINEL)


def sentinel_servers(url: str) -> str | None:
    """Return `host:port,host:port/name/database` of a Sentinel URL; None if it cannot be parsed."""
    found = SENTINEL_URL.fullmatch(url)
    if found is None:
        return None
    return "/".join(filter(None, (found["hosts"], found["name"], found["database"])))
