"""Seals texts in the `data` of events, and opens them again. Pure.

A value is replaced by a text, so every other part of an event stays as it is, also when the event
is packed, unpacked or exported. A value that looks sealed and was not sealed by a key of its tenant
for this field of this event stays as it is: it is a text of its writer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import msgspec

from sinks.postgres.copy_format import decode_column, encode_json
from sinks.postgres.encryption.sealing import PREFIX, DataKey, split_text
from sinks.postgres.encryption.tenant_keys import TenantKeys

FIELDS: Final = ("query", "response", "arguments", "plan")
"""Fields of `data` that are sealed whole, whatever their type."""
NESTED: Final = (
    ("result", "output"), ("prediction", "reasoning"), ("decision", "reasoning"),
    ("correction", "query"), ("correction", "response"),
)  # fmt: skip
"""Fields of objects in `data` that are sealed."""
_ESCAPE: Final = b"\\u"
_MARKS: Final = (
    *(f'"{name}"'.encode() for name in {*FIELDS, *(own for _, own in NESTED)}),
    _ESCAPE,  # a name may be written with escapes
)
_SEALED: Final = PREFIX.encode()
_TENANT, _DATA = 1, 13
"""Places of columns in a line of COPY."""
_Objects = dict[str, msgspec.Raw]
_decode: Final = msgspec.json.Decoder(_Objects).decode
_encode: Final = msgspec.json.Encoder().encode
Change = Callable[[bytes, str], bytes | None]
"""Takes a value's JSON and its name; returns another JSON, None: it goes, or itself."""


def seal_lines(lines: Sequence[bytes], keys: TenantKeys) -> list[bytes]:
    """Return lines of COPY text (`sinks.postgres.episodes.encode_events`), their texts sealed."""
    return [_sealed_line(line, keys) for line in lines]


def _sealed_line(line: bytes, keys: TenantKeys) -> bytes:
    if not any(mark in line for mark in _MARKS):
        return line
    columns = line.split(b"\t")
    key = keys.newest(decode_column(columns[_TENANT]))
    if key is None:
        return line
    data = columns[_DATA].replace(b"\\\\", b"\\")
    columns[_DATA] = encode_json(seal_data(data, key, columns[0].decode()))
    return b"\t".join(columns)


def seal_data(data: bytes, key: DataKey, event: str) -> bytes:
    """Return the JSON of an event's `data` with its texts sealed. `event`: its id."""
    place = f"event/{_own(event)}/"

    def seal(value: bytes, name: str) -> bytes:
        if value in (b"null", b'""') or not _storable(value):
            return value
        return b'"%b"' % key.seal_text(value, place + name).encode()

    return _changed(data, seal)


def open_data(data: bytes, keys: TenantKeys, tenant: str, event: str) -> bytes:
    """Return the JSON of an event's `data` with its texts opened, less those of shredded keys."""
    if _SEALED not in data:
        return data
    place = f"event/{_own(event)}/"

    def open_value(value: bytes, name: str) -> bytes | None:
        parts = split_text(value[1:-1].decode()) if value.startswith(b'"' + _SEALED) else None
        key = None if parts is None else keys.of(tenant, parts[0])
        if parts is None or key is None:
            return value
        return None if key.key is None else key.open(parts[1], place + name) or value

    return _changed(data, open_value)


def is_sealed(data: bytes | str) -> bool:
    """Return whether JSON may have a sealed text in it."""
    return (PREFIX in data) if isinstance(data, str) else _SEALED in data


def _changed(data: bytes, change: Change) -> bytes:
    fields = _object(data)
    if fields is None:
        return data
    for name in FIELDS:
        _change(fields, name, name, change)
    for parent, name in NESTED:
        inner = _object(bytes(fields[parent])) if parent in fields else None
        if inner is not None and name in inner:
            _change(inner, name, f"{parent}.{name}", change)
            fields[parent] = msgspec.Raw(_encode(inner))
    return _encode(fields)


def _change(fields: _Objects, name: str, whole: str, change: Change) -> None:
    if name in fields:
        found = change(bytes(fields[name]), whole)
        if found is None:
            del fields[name]
        else:
            fields[name] = msgspec.Raw(found)


def _object(text: bytes) -> _Objects | None:
    try:
        return _decode(text)
    except msgspec.MsgspecError:
        return None  # no object


def _own(event: str) -> str:
    try:
        return UUID(event).hex
    except ValueError:
        return event  # Postgres will refuse it


def _storable(value: bytes) -> bool:
    """Return whether Postgres would store a value's JSON: if not, it must see it, to refuse it."""
    if _ESCAPE not in value:
        return True
    try:
        return _is_clean(json.loads(value))
    except (ValueError, RecursionError):
        return False


def _is_clean(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" not in value and not any("\ud800" <= each <= "\udfff" for each in value)
    if isinstance(value, dict):
        return all(map(_is_clean, value)) and all(map(_is_clean, value.values()))
    return not isinstance(value, list) or all(map(_is_clean, value))
