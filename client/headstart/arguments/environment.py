"""Settings of the client: an argument, else an environment variable, else a default."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from headstart.arguments.checks import InvalidArgument, choice, flag
from headstart.codecs import Compression, require_codec
from headstart.connections.own_security import environment_brokers, own_security
from headstart.connections.properties import security_in
from headstart.connections.secret_variables import secret_variable
from headstart.scrubbing.scrubber import Scrubbing, Where
from headstart.shipping.supervisor import Mode
from headstart.spool.layout import CLIENT_ID

KAFKA_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")
"""Pattern of topic names and client ids."""
_LOCAL_KAFKA: Final = "127.0.0.1:9092"
_LOCAL_REDIS: Final = "redis://127.0.0.1:6379/0"
SHORTEST_KEY, LONGEST_KEY = 16, 64
"""Of a hash key, in bytes."""


def kafka(given: str | None = None) -> str:
    """Return `given`, else HEADSTART_KAFKA, else the brokers in the file HEADSTART_KAFKA_CONFIG.

    Else 127.0.0.1:9092. Raises `UnusableSecurity`.
    """
    if given is not None:
        return given
    return os.environ.get("HEADSTART_KAFKA") or environment_brokers() or _LOCAL_KAFKA


def profile(kafka_config: str | os.PathLike[str] | None = None) -> str:
    """Return the name of the security of Kafka connections that spools record; "": plain text.

    `kafka_config`: a `client.properties`; default: the environment's. Raises `UnusableSecurity`.
    """
    found = own_security() if kafka_config is None else security_in(Path(kafka_config))
    return found.profile


def redis(given: str | None = None) -> str:
    """Return `given`, else HEADSTART_REDIS, else redis://127.0.0.1:6379/0.

    HEADSTART_REDIS_FILE names a file that holds the URL. Raises `UnusableSecurity`.
    """
    return given or secret_variable("HEADSTART_REDIS") or _LOCAL_REDIS


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


def shared_learning() -> bool:
    """Return whether HEADSTART_SHARED_LEARNING is set. Raises `InvalidArgument`."""
    named = os.environ.get("HEADSTART_SHARED_LEARNING") or "0"
    return bool(choice("HEADSTART_SHARED_LEARNING", named, ("0", "1")) == "1")


def log_arguments(given: bool | None = None) -> bool:
    """Return `given`, else HEADSTART_LOG_ARGUMENTS, else true. Raises `InvalidArgument`."""
    if given is not None:
        return flag("log_arguments", given)
    named = os.environ.get("HEADSTART_LOG_ARGUMENTS") or "1"
    return bool(choice("HEADSTART_LOG_ARGUMENTS", named, ("0", "1")) == "1")


def hash_key(given: bytes | str | None = None) -> bytes:
    """Return `given`, else HEADSTART_HASH_KEY or the content of the file HEADSTART_HASH_KEY_FILE.

    In bytes. Raises `InvalidArgument`.

    The message does not repeat it.
    """
    key = secret_variable("HEADSTART_HASH_KEY") if given is None else given
    wanted = f"a secret of {SHORTEST_KEY} to {LONGEST_KEY} bytes"
    if not key:
        raise InvalidArgument(
            f"hash_key is missing: shared learning needs {wanted}, the same in all executors of a "
            "tenant (HEADSTART_HASH_KEY)"
        )
    if not isinstance(key, bytes | str):
        raise InvalidArgument(f"hash_key must be {wanted}, not {type(key).__name__}")
    encoded = key.encode() if isinstance(key, str) else key
    if not SHORTEST_KEY <= len(encoded) <= LONGEST_KEY:
        raise InvalidArgument(
            f"hash_key must be {wanted}, not of {len(encoded)} (HEADSTART_HASH_KEY)"
        )
    return encoded


def client_id(given: str | None = None) -> str:
    """Return `given`, else HEADSTART_CLIENT_ID, else `headstart`. Raises `InvalidArgument`."""
    named = given or os.environ.get("HEADSTART_CLIENT_ID") or CLIENT_ID
    if not isinstance(named, str) or not KAFKA_NAME.fullmatch(named):
        raise InvalidArgument(
            f"client_id must be 1 to 249 of A-Z a-z 0-9 . _ -, not {named!r:.300}"
        )
    return named
