"""Counts the bytes of a text in each place that may hold a user's data."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import cramjam
from redis import Redis

from deploy.local import Addresses
from deploy.local.postgres_install import installation
from topics.catalogue import Topic
from topics.kafka.reader import LogTruncated, read_records, topic_state

_PURGE_ROW: Final = b"kpurge"
"""Begin of the key of a changelog's row that names a purged user, so that the purge is not applied
twice."""


class CanaryCounts:
    """The places of one system. `words`: what is counted, such as a user's text and name."""

    def __init__(self, at: Addresses, folder: Path, words: Sequence[bytes]) -> None:
        """`folder`: for files of its own."""
        self._at, self._folder, self._words = at, folder, words
        self._written = 0

    def count(self, parts: Iterable[bytes], words: Sequence[bytes] = ()) -> int:
        """Return how many bytes of parts are bytes of the words."""
        wanted = words or self._words
        return sum(part.count(word) * len(word) for part in parts for word in wanted)

    def dump(self, text: bytes) -> int:
        """Count one word in what `pg_dump` writes; binary columns are in hexadecimal there."""
        program = installation(None) / "bin" / "pg_dump"
        ended = subprocess.run(
            [program, "--dbname", self._at.postgres], capture_output=True, check=True
        )
        return self.count([ended.stdout], [text, text.hex().encode()])

    def redis(self) -> int:
        """Count in every key, field and value. Raises `ValueError` for a type it cannot read."""
        with Redis.from_url(self._at.redis) as redis:
            return self.count(_of_redis(redis))

    def files(self, *directories: Path) -> int:
        """Count in the files of directories, as they are."""
        files = (each for place in directories for each in sorted(place.rglob("*")))
        return self.count(each.read_bytes() for each in files if each.is_file())

    def export(self, *command: str, words: Sequence[bytes] = ()) -> int:
        """Count in what an export writes; `words`: other ones. If it finds nothing: 0."""
        self._written += 1
        file = self._folder / f"export-{self._written}.jsonl.zst"
        run_headstart(self._at, self._folder, *command, str(file), may_fail=True)
        if not file.exists():
            return 0
        return self.count([bytes(cramjam.zstd.decompress(file.read_bytes()))], words)

    async def topic(self, topic: Topic) -> int:
        """Count in keys, values and headers of all records of a topic.

        Not in rows that keep a purge from being applied twice.
        """
        kafka = self._at.kafka
        while True:
            state, parts = await topic_state(kafka, topic.name), list[bytes]()
            try:
                async for record in read_records(kafka, topic.name, state.begin, state.end):
                    key = bytes(record.key or b"")
                    if not key.startswith(_PURGE_ROW):
                        headers = (value for _name, value in record.headers)
                        parts += key, bytes(record.value or b""), *map(bytes, headers)
            except LogTruncated:
                continue  # retention was faster
            return self.count(parts)


def _of_redis(redis: Any) -> Iterator[bytes]:
    for key in redis.scan_iter():
        yield key
        match redis.type(key):
            case b"hash":
                yield from (part for pair in redis.hgetall(key).items() for part in pair)
            case b"string":
                yield redis.get(key) or b""
            case kind:
                raise ValueError(f"{key!r} is a {kind!r}, which is not read")


def run_headstart(
    at: Addresses,
    folder: Path,
    *command: str,
    settings: Mapping[str, str] = MappingProxyType({}),
    may_fail: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command of the service in a folder. Raises `CalledProcessError` where it fails.

    `settings`: further variables of its environment.
    """
    environment: Mapping[str, str] = {
        "HEADSTART_KAFKA": at.kafka, "HEADSTART_POSTGRES": at.postgres,
        "HEADSTART_REDIS": at.redis, "HEADSTART_DATA": str(folder / "none"), **settings,
    }  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-P", "-m", "cli", *command], cwd=folder, capture_output=True, text=True,
        check=False, env={**_inherited(), **environment},
    )  # fmt: skip
    if ended.returncode and not may_fail:
        print(ended.stderr, file=sys.stderr)
        ended.check_returncode()
    return ended


def _inherited() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if "HEADSTART" not in name}
