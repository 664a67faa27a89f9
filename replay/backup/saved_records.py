"""The lines of a backup that hold Kafka records and rows of the contexts table."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from replay.backup.manifest import BackupFile, UnusableBackup
from replay.backup.packed_files import lines_of

Headers = tuple[tuple[str, bytes], ...]


class SavedRecord(NamedTuple):
    """One record with the place that it had. `timestamp`: Unix ms."""

    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def record_line(record: Any) -> bytes:
    """Return the line of an aiokafka record."""
    return saved_line(record, record.headers)


def saved_line(record: Any, headers: Iterable[tuple[str, bytes]]) -> bytes:
    """Return the line of an aiokafka record that gets other headers."""
    named = [[name, _text(value)] for name, value in headers]
    fields = [record.partition, record.offset, record.timestamp, _text(record.key),
              _text(record.value), named]  # fmt: skip
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


def row_line(partition: int, key: bytes, row: bytes) -> bytes:
    """Return the line of a row of the contexts table."""
    return orjson.dumps([partition, _text(key), _text(row)], option=orjson.OPT_APPEND_NEWLINE)


def read_saved_records(folder: Path, file: BackupFile) -> Iterator[SavedRecord]:
    """Yield the records of a file. Raises `UnusableBackup` and `OSError`."""
    for line in lines_of(folder, file):
        try:
            partition, offset, timestamp, key, value, headers = orjson.loads(line)
            pairs = tuple((str(name), _bytes(each) or b"") for name, each in headers)
            yield SavedRecord(
                int(partition), int(offset), timestamp, _bytes(key), _bytes(value), pairs
            )
        except (ValueError, TypeError, binascii.Error) as error:
            raise UnusableBackup(f"{folder / file.name}: damaged: no record ({error})") from error


def read_saved_rows(folder: Path, file: BackupFile) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield (partition, key, row). Raises `UnusableBackup` and `OSError`."""
    for line in lines_of(folder, file):
        try:
            partition, key, row = orjson.loads(line)
            yield int(partition), base64.b64decode(key), base64.b64decode(row)
        except (ValueError, TypeError, binascii.Error) as error:
            raise UnusableBackup(f"{folder / file.name}: damaged: no row ({error})") from error


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else base64.b64encode(raw).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
