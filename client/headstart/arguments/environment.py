"""Settings of an emitter: an argument, else an environment variable, else a default."""

from __future__ import annotations

import os
import re
from typing import Final

from headstart.arguments.checks import InvalidArgument, choice
from headstart.codecs import Compression, require_codec
from headstart.scrubbing.scrubber import Scrubbing, Where
from headstart.shipping.supervisor import Mode
from headstart.spool.layout import CLIENT_ID

KAFKA_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Pattern of topic names and client ids."""


def shipper_mode(given: Mode | None = None) -> Mode:
    """Return `given`, else HEADSTART_SHIPPER, else `process`. Raises `InvalidArgument`."""
    named = given or os.environ.get("HEADSTART_SHIPPER") or "process"
    name = "shipper" if given else "HEADSTART_SHIPPER"
    return choice(name, named, ("process", "thread", "none"))  # type: ignore[no-any-return]


def scrubbing(given: Where | Scrubbing | None = None) -> Scrubbing:
    """Return `given`, else HEADSTART_SCRUB, else `shipper`. Raises `InvalidArgument`."""
    if isinstance(given, Scrubbing):
        return given
    return Scrubbing(given or os.environ.get("HEADSTART_SCRUB") or "shipper")  # type: ignore[arg-type]


def compression(given: Compression | None = None) -> Compression | None:
    """Return `given`, else HEADSTART_COMPRESSION. Raises `CodecMissing`, `InvalidArgument`."""
    named = given or os.environ.get("HEADSTART_COMPRESSION") or None
    require_codec(named)
    return named  # type: ignore[return-value]


def client_id(given: str | None = None) -> str:
    """Return `given`, else HEADSTART_CLIENT_ID, else `headstart`. Raises `InvalidArgument`."""
    named = given or os.environ.get("HEADSTART_CLIENT_ID") or CLIENT_ID
    if not isinstance(named, str) or not KAFKA_NAME.fullmatch(named):
        raise InvalidArgument(
            f"client_id must be 1 to 249 of A-Z a-z 0-9 . _ -, not {named!r:.300}"
        )
    return named
