"""The marker by which readers know that a Redis has all modes, so that an absent one is none.

A Redis that was emptied serves no kill switch. Without the marker, readers take no mode for `act`:
the field `published` of everybody's hash of modes, which goes with whatever empties Redis. It holds
the run id of the server; one that came back with an older snapshot has another.

While modes are being published the field holds a token, which all who publish share. It is replaced
by the run id only where it is still there: else Redis lost meanwhile what was published before.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from redis.exceptions import ResponseError

from headstart.keys import MODES, PUBLISHED, PUBLISHING
from sinks.redis.lua import script

_FIELD: Final = PUBLISHED.encode()
_BEGIN: Final = script("begin_modes")
_FINISH: Final = script("finish_modes")
V = TypeVar("V")


def without_marker(tenant: str | None, fields: Mapping[bytes, V]) -> dict[bytes, V]:
    """Return the modes in the fields of a hash of modes; `tenant`: None or "" for everybody's."""
    return {field: value for field, value in fields.items() if tenant or field != _FIELD}


class ModesMarker:
    """Sets the marker. What a client of Redis raises is raised here, unless it is said."""

    def __init__(self, client: Any) -> None:
        self._redis = client

    async def is_set(self, run: bytes | None = None) -> bool:
        """Return whether this server's marker is there; also where the hash of modes is no hash.

        Readers take that for `off`, and nothing can be set in it. `run`: the server's run id; None:
        it is asked for.
        """
        try:
            found = await self._redis.hget(MODES, PUBLISHED)
        except ResponseError as error:
            if str(error).startswith("WRONGTYPE"):
                return True
            raise
        return found is not None and bytes(found) == (run or await self._run_id())

    async def begin(self) -> bytes | None:
        """Note that all modes are about to be published; return the token to finish with.

        None where the marker is there already, or none can be set.
        """
        token = PUBLISHING + secrets.token_hex(8).encode()
        arguments = (PUBLISHED, PUBLISHING, token, await self._run_id())
        held: bytes | None = await self._eval(_BEGIN, arguments)
        return held

    async def finish(self, token: bytes) -> bool:
        """Set the marker and announce it, if nothing was lost since `begin`; return whether."""
        arguments = (PUBLISHED, token, await self._run_id())
        return bool(await self._eval(_FINISH, arguments))

    async def _eval(self, text: str, arguments: tuple[str | bytes, ...]) -> Any:
        """Run a script on the hash; None where it is no hash."""
        try:
            return await self._redis.eval(text, 1, MODES, *arguments)
        except ResponseError as error:
            if "WRONGTYPE" in str(error):
                return None
            raise

    async def _run_id(self) -> bytes:
        return str((await self._redis.info("server"))["run_id"]).encode()
