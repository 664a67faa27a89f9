"""Changes passwords of Kafka's users by the request of `kafka-configs.sh --add-config SCRAM-...`.

aiokafka has no such request, and a JVM for each change would take too long.
"""

from __future__ import annotations

import hashlib
import os
import socket
import struct
from typing import Final

_ALTER_SCRAM_CREDENTIALS: Final = 51
_SHA_512: Final = 2
_ITERATIONS: Final = 4096
_NO_TAGS: Final = b"\0"


def set_password(kafka: str, user: str, password: str) -> None:
    """Give a user this password for SCRAM-SHA-512, and no other. `kafka`: a plain listener."""
    salt = os.urandom(16)
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    mechanism = struct.pack(">bi", _SHA_512, _ITERATIONS)
    upsertion = _text(user) + mechanism + _bytes(salt) + _bytes(salted) + _NO_TAGS
    _send(kafka, _array() + _array(upsertion) + _NO_TAGS)


def remove_user(kafka: str, user: str) -> None:
    """Let a user log in no more."""
    deletion = _text(user) + struct.pack(">b", _SHA_512) + _NO_TAGS
    _send(kafka, _array(deletion) + _array() + _NO_TAGS)


def _send(kafka: str, body: bytes) -> None:
    """Send version 0 of the request, and require that the broker accepts it."""
    head = struct.pack(">hhih", _ALTER_SCRAM_CREDENTIALS, 0, 1, -1) + _NO_TAGS
    host, _, port = kafka.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(head + body)) + head + body)
        with connection.makefile("rb") as answers:
            (length,) = struct.unpack(">i", answers.read(4))
            answer = answers.read(length)
    # Correlation id, tags, throttle time, the length of one result, and that of its user.
    at = 4 + 1 + 4 + 1
    at += answer[at]
    (error,) = struct.unpack_from(">h", answer, at)
    assert error == 0, (error, answer)


def _array(*items: bytes) -> bytes:
    return bytes([len(items) + 1]) + b"".join(items)


def _bytes(value: bytes) -> bytes:
    """Return a compact string; shorter than 127 bytes, its length has one byte."""
    return bytes([len(value) + 1]) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())
