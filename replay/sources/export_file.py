"""Exports: a piece of the log in a file, zstd over JSON lines, for `zstd -d`, jq and us.

One line a record, as it was in the topic: `{"partition": n, "offset": n, "timestamp": ms, "key":
text, "value": [events]}`, `headers` where it has any, `base64` in the place of `value` where it is
not JSON. The first line describes the file, the last marks it as complete. Lines of one partition
make a piece (`pieces`): a zstd frame behind a head with its length, partition and checksum, so
that a reader takes only what it wants, in bounded memory.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from io import BufferedReader
from math import inf
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import msgspec
import orjson

from processing.records.batch import Headers, RecordBatch, empty_batch
from replay.files.input import name_of
from replay.files.output import Target, output_file
from replay.predictions.notes import Notes
from replay.sources.base import (
    NothingThere,
    ReadOptions,
    TimeRange,
    largest_first,
)
from replay.sources.export_chunks import (
    DamagedHead,
    Head,
    NotAPiece,
    body,
    encode_piece,
    heads,
)
from topics.catalogue import EVENTS

FORMAT: Final = 1
FRAME_BYTES: Final = 1_000_000
_REMEDY: Final = "restore the file from a copy, or export it again"


class NotAnExport(ValueError):
    """The file is not an export, or is cut, damaged or of a newer version; the message says how."""


class ExportHeader(msgspec.Struct):
    """The first line of an export."""

    headstart_export: int
    epoch: int
    partitions: int
    source: str = ""


class _Line(msgspec.Struct):
    partition: int
    offset: int
    timestamp: int
    key: str | None = None
    key64: str | None = None
    headers: list[tuple[str, str | None]] = []
    base64: str | None = None
    value: msgspec.Raw = msgspec.Raw(b"")


_decode_line = msgspec.json.Decoder(_Line).decode
_raw = msgspec.json.Decoder(msgspec.Raw).decode


@dataclass
class Writer:
    """Writes an export, whole or not at all: `with Writer(file, header) as writer: …`."""

    file: Target
    header: ExportHeader
    inputs: Sequence[Target] = ()
    records: int = 0
    _lines: dict[int, list[bytes]] = field(default_factory=dict)
    _sizes: dict[int, int] = field(default_factory=dict)
    _held: ExitStack = field(default_factory=ExitStack)
    _out: IO[bytes] | None = None

    def __enter__(self) -> Self:
        opened = output_file(self.file, self.inputs, format="zstd")
        self._out = self._held.enter_context(opened)
        self._held.push(self._end)
        self._write([msgspec.json.encode(self.header) + b"\n"], -1, 0)
        return self

    def add(self, batch: RecordBatch) -> None:
        """Add records of one partition, which have to come in order."""
        lines = self._lines.setdefault(batch.partition, [])
        size = self._sizes.get(batch.partition, 0)
        for place, offset in enumerate(batch.offsets):
            line = encode_line(batch, place, batch.headers.get(offset))
            lines.append(line)
            size += len(line)
            self.records += 1
            if size >= FRAME_BYTES:
                self._flush(batch.partition)
                lines, size = self._lines[batch.partition], 0
        self._sizes[batch.partition] = size

    def _flush(self, partition: int) -> None:
        if lines := self._lines[partition]:
            self._write(lines, partition, len(lines))
        self._lines[partition], self._sizes[partition] = [], 0

    def _write(self, lines: list[bytes], partition: int, records: int) -> None:
        assert self._out is not None
        self._out.write(encode_piece(lines, partition, records))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._held.__exit__(kind, error, traceback)

    def _end(
        self,
        kind: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            for partition in list(self._lines):
                self._flush(partition)
            self._write([orjson.dumps({"records": self.records}) + b"\n"], -1, 0)


def encode_line(batch: RecordBatch, place: int, headers: Headers | None) -> bytes:
    """Return the line of one record."""
    head: dict[str, Any] = {
        "partition": batch.partition,
        "offset": batch.offsets[place],
        "timestamp": batch.timestamps[place],
    }
    key, value = batch.keys[place], batch.values[place]
    if key is not None:
        try:
            head["key"] = key.decode()
        except UnicodeDecodeError:
            head["key64"] = _text(key)
    if headers:
        head["headers"] = [(name, None if each is None else _text(each)) for name, each in headers]
    if value is not None and _plain(value):
        return b'%b,"value":%b}\n' % (orjson.dumps(head)[:-1], value)
    head["base64"] = None if value is None else _text(value)
    return orjson.dumps(head) + b"\n"


def _plain(value: bytes) -> bool:
    """Return whether bytes can stand within a line as they are, and be found there again."""
    if (
        not value
        or b"\n" in value
        or b"\r" in value
        or value[:1] not in b"[{"
        or value[-1:] not in b"]}"
    ):
        return False
    try:
        value.isascii() or value.decode()
        _raw(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def read_header(file: Path) -> ExportHeader:
    """Return the description in an export. Raises `NotAnExport` and `OSError`."""
    with file.open("rb") as read:
        _, line, _ = next(_pieces(read, file, None), (None, b"", 0))
    try:
        header = msgspec.json.decode(line, type=ExportHeader)
    except msgspec.MsgspecError as error:
        raise NotAnExport(
            f"{file}: not an export ({error}); `headstart export FILE` writes one"
        ) from error
    if header.headstart_export > FORMAT:
        raise NotAnExport(
            f"{file}: written by a newer headstart (format {header.headstart_export}, this one "
            f"reads {FORMAT}): upgrade, or export it again with this version"
        )
    return header


def is_export(file: Path) -> bool:
    """Return whether a zstd file begins as our exports do. Raises `OSError`."""
    with file.open("rb") as read:
        try:
            return next(heads(read), None) is not None
        except NotAPiece:
            return False


def _heads(read: BufferedReader, file: Path) -> Iterator[Head]:
    """Yield the heads of a file. Raises `NotAnExport`, also where one of them is damaged."""
    try:
        yield from heads(read)
    except NotAPiece as error:
        raise NotAnExport(
            f"{file}: not an export, or damaged where it begins; `headstart export FILE` writes one"
        ) from error
    except DamagedHead as error:
        raise NotAnExport(f"{file}, {error}: {_REMEDY}") from error


def _pieces(
    read: BufferedReader, file: Path, partition: int | None
) -> Iterator[tuple[Head, bytes, int]]:
    """Yield the pieces of a partition, and those of none, with the byte where each begins."""
    for number, head in enumerate(_heads(read, file)):
        if head.partition not in (-1, partition):
            continue
        at = read.tell()
        try:
            yield head, body(read, head), at
        except ValueError as error:
            if not number:
                raise NotAnExport(
                    f"{file}: not an export, or damaged where it begins ({error}); "
                    "`headstart export FILE` writes one"
                ) from error
            raise _damaged(file, at, head, str(error)) from error


def _damaged(file: Path, at: int, head: Head, why: str) -> NotAnExport:
    what = "the end of the file"
    if head.partition >= 0:
        what = f"a piece with {head.records} records of partition {head.partition}"
    return NotAnExport(f"{file}, byte {at}: {what} is damaged ({why}): {_REMEDY}")


def read_export(
    file: Path, partition: int, span: TimeRange | None = None
) -> Iterator[tuple[RecordBatch, float]]:
    """Yield a partition's records of a range, and which share of the file was read.

    Raises `NotAnExport` where the file is damaged, and at the end where it is cut.
    """
    size, whole = file.stat().st_size, False
    with file.open("rb") as read:
        for number, (head, lines, at) in enumerate(_pieces(read, file, partition)):
            if head.partition >= 0:
                batch, wrong = _batch(partition, lines, span or TimeRange())
                if wrong:
                    why = f"{len(wrong)} lines cannot be read: {wrong[0]}"
                    raise _damaged(file, at, head, why) from wrong[0]
                if len(batch):
                    yield batch, read.tell() / size
            elif number:
                whole = True
    if not whole:
        raise NotAnExport(f"{file}: its end is missing: {_REMEDY}")


def _batch(partition: int, lines: bytes, span: TimeRange) -> tuple[RecordBatch, list[Exception]]:
    """Return the records of a piece that are in a range, and what is wrong with other lines."""
    batch = empty_batch(EVENTS.name, partition, 0)
    begin, end = span.begin.get(partition, 0), span.end.get(partition, inf)
    wrong: list[Exception] = []
    for line in lines.splitlines():
        # Within a JSON string the quotes would be escaped, so this is found but once.
        at = line.find(b',"value":')
        try:
            record = _decode_line(line[:at] + b"}" if at > 0 else line)
            key, value = _key(record), line[at + 9 : -1] if at > 0 else _unpacked(record.base64)
            headers = [(name, _unpacked(text)) for name, text in record.headers]
        except (ValueError, msgspec.MsgspecError) as error:
            wrong.append(error)
            continue
        if begin <= record.offset < end and span.holds(record.timestamp):
            batch.offsets.append(record.offset)
            batch.timestamps.append(record.timestamp)
            batch.keys.append(key)
            batch.values.append(value)
            if headers:
                batch.headers[record.offset] = headers
    if batch.offsets:
        batch.begin, batch.end = batch.offsets[0], batch.offsets[-1] + 1
    return batch, wrong


def _unpacked(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text, validate=True)


def _key(record: _Line) -> bytes | None:
    return _unpacked(record.key64) if record.key is None else record.key.encode()


@dataclass(frozen=True)
class ExportSource:
    """An export as a history."""

    file: Path
    reading: ReadOptions
    live = True

    @property
    def name(self) -> str:
        """Its name in messages."""
        return name_of(self.file)

    def log(self) -> tuple[int, int]:
        """Return the log's epoch and how many partitions it has."""
        header = read_header(self.file)
        return header.epoch, header.partitions

    def units(self) -> list[int]:
        """Return the partitions that the file holds records of. Raises `NotAnExport`."""
        read_header(self.file)
        sizes: dict[int, int] = {}
        with self.file.open("rb") as read:
            for head in _heads(read, self.file):
                if head.partition >= 0:
                    sizes[head.partition] = sizes.get(head.partition, 0) + head.bytes
        if not sizes:
            raise NothingThere(f"{self.file} holds no records")
        return largest_first(sizes)

    def batches(self, unit: int, notes: Notes) -> Iterator[tuple[RecordBatch, float]]:  # noqa: ARG002
        """Yield a partition's records in order. Raises `NotAnExport`."""
        yield from read_export(self.file, unit, self.reading.range)
