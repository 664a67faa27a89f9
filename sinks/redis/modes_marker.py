"""The marker that Redis has all modes, so that readers can trust an absent mode.

A Redis that was emptied serves no kill switch, so without the marker readers do not take a missing
mode for `act`. The marker is the field `published` in the global hash of modes, which is lost with
the modes. It holds the run id of the server; one that restarted with an older snapshot has another.

While modes are being published the field holds a token, shared by all publishers. It is replaced by
the run id only if it is still there: else Redis lost meanwhile what was published before.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from redis.exceptions import ResponseError

from headstart.keys import MODES, PUBLISHED, PUBLISHING
from sinks.redis.lua import script
from sinks.redis.masters import is_cluster, run_id

_FIELD: Final = PUBLISHED.encode()
_BEGIN: Final = script("begin_modes")
_FINISH: Final = script("finish_modes")
V = TypeVar("V")


def without_marker(tenant: str | None, fields: Mapping[bytes, V]) -> dict[bytes, V]:
    """Return the modes in a hash of modes; `tenant`: None or "" for the global hash."""
    return {field: value for field, value in fields.items() if tenant or field != _FIELD}


class ModesMarker:
    """Reads and sets the marker. Errors of the Redis client are raised unless noted."""

    def __init__(self, client: Any) -> None:
        self._redis = client

    async def is_set(self, run: bytes | None = None) -> bool:
        """Return whether this server's marker is set.

        Also True if the key of modes is not a hash: readers take that for `off`, and nothing can be
        set in it. `run`: the server's run id, requested if None.
        """
        try:
            found = await self._redis.hget(MODES, PUBLISHED)
        except ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                return True
            raise
        known = None if is_cluster(self._redis) else run  # there `run` stands for all masters
        return found is not None and bytes(found) == (known or await self._run_id())

    async def begin(self) -> bytes | None:
        """Begin publishing all modes; return the token for `finish`.

        Returns None if the marker is set already, or cannot be set.
        """
        token = PUBLISHING + secrets.token_hex(8).encode()
        arguments = (PUBLISHED, PUBLISHING, token, await self._run_id())
        held: bytes | None = await self._eval(_BEGIN, arguments)
        return held

    async def finish(self, token: bytes) -> bool:
        """Set and announce the marker if nothing was lost since `begin`; return whether it was."""
        arguments = (PUBLISHED, token, await self._run_id())
        return bool(await self._eval(_FINISH, arguments))

    async def _eval(self, text: str, arguments: tuple[str | bytes, ...]) -> Any:
        """Run a script on the hash; return None if the key is not a hash."""
        try:
            return await self._redis.eval(text, 1, MODES, *arguments)
        except ResponseError as error:
            if "WRONGTYPE" in str(error):
                return None
            raise

    async def _run_id(self) -> bytes:
        return await run_id(self._redis, MODES)
