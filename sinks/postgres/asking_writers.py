"""The writer of a run that asks the memory, as logged retrievals name it. Pure."""

from __future__ import annotations

from hashlib import sha256


def writer_hash(tenant: str, writer: str) -> str:
    """Return the first 32 hexadecimal digits of SHA-256 of the tenant, a zero byte and a writer.

    `writer`: as `memory.episodes.record.writer_of` names it, such as `user:u7`. So a log of
    retrievals has no name of a user, and a purge finds those of one.
    """
    return sha256(f"{tenant}\0{writer}".encode()).hexdigest()[:32]
