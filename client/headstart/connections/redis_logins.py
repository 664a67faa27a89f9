"""The login of Redis connections whose address is in a file: read again for each connection."""

from __future__ import annotations

import re
from typing import Any, Final

from redis.credentials import CredentialProvider
from redis.exceptions import ConnectionError as RedisConnectionError

from headstart.connections.redis_options import url_options
from headstart.connections.secret_variables import current_address, is_from_file

_USER_INFO: Final = re.compile(r"(?<=://)[^/?#]*@")
_IN_QUERY: Final = re.compile(r"(?<=[?&])(?:username|password)=[^&#]*")


class FileLogin(CredentialProvider):
    """Gives redis-py the user and password in the file of an address.

    `address`: as the file held it at some time. `prefix`: `sentinel_` for the login of Sentinels.
    """

    def __init__(self, address: str, prefix: str = "") -> None:
        self._address, self._prefix = address, prefix

    def get_credentials(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return user and password, the password alone, or nothing if the file has neither.

        Raises redis-py's `ConnectionError`, after which it is tried again, if the file holds no
        address.
        """
        try:
            options = url_options(current_address(self._address))
        except ValueError:  # it may quote the password
            raise RedisConnectionError("the file of the address holds no Redis URL") from None
        user = str(options.get(f"{self._prefix}username") or "")
        password = str(options.get(f"{self._prefix}password") or "")
        if user:
            return user, password
        return (password,) if password else ()

    async def get_credentials_async(self) -> tuple[str, ...]:  # type: ignore[override]
        """Return the same; the file is small."""
        return self.get_credentials()


def with_file_login(url: str) -> tuple[str, dict[str, Any]]:
    """Return the URL to connect to, and the options of redis-py that log in.

    If the URL is from a file: what the file holds now, without user and password, and a `FileLogin`
    in their place. Any other URL is returned unchanged, without options.
    """
    if not is_from_file(url):
        return url, {}
    without = _IN_QUERY.sub("", _USER_INFO.sub("", current_address(url), count=1))
    return without, {"credential_provider": FileLogin(url)}
