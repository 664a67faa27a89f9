"""The sink of `headstart.events`: stores the JSON of validated events, each once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, ClassVar, Final

import msgspec
from psycopg import AsyncConnection

from sinks.postgres.batch_writer import BatchWriter
from sinks.postgres.copy_format import (
    decode_column,
    encode_columns,
    encode_json,
    encode_jsons,
    encode_time,
    split_columns,
)
from sinks.postgres.encryption.event_texts import seal_lines
from sinks.postgres.encryption.tenant_keys import keys_to_write
from sinks.postgres.statements import load_statements
from topics.catalogue import EPISODES_GROUP

_ABSENT: Final = msgspec.Raw()
_EMPTY: Final = (b"", b"null")
_BOOLEAN: Final = {True: "t", False: "f", None: ""}


class _Columns(msgspec.Struct, gc=False):
    """The columns of an event; `data` stays JSON text."""

    id: str
    tenant: str
    event_type: str
    workflow_type: str
    workflow_id: str
    timestamp: int
    task_id: str | None = None
    user_id: str | None = None
    agent_id: str | None = None
    session_id: str | None = None
    tool_id: str | None = None
    success: bool | None = None
    confidence: float | None = None
    data: msgspec.Raw = _ABSENT
    origin: msgspec.Raw = _ABSENT
    """Only for transport, never stored."""


class _OnlyColumns(_Columns, gc=False, forbid_unknown_fields=True):
    pass


_RECENT_S: Final = 3_600.0
"""Much less than `packing.writing.LEAST_COLD_S`: the clocks of two machines may differ."""
_TEXTS: Final = 13
"""Number of columns that `_texts` returns."""
_LEAST: Final = 1e-37
"""Smaller confidences are stored as 0: Postgres' `real` rejects them."""
_KNOWN: Final = frozenset(_Columns.__struct_fields__)
_decode_only = msgspec.json.Decoder(_OnlyColumns).decode
_decode_lines = msgspec.json.Decoder(_OnlyColumns).decode_lines
_decode_known = msgspec.json.Decoder(_Columns).decode
_decode_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def encode_events(raws: Sequence[bytes], /) -> list[bytes]:
    """Return events' JSON as lines of COPY text; see `encode_event`."""
    together = _encode_together(raws) if len(raws) > 1 else None
    return together or [encode_event(raw) for raw in raws]


def encode_event(raw: bytes, /) -> bytes:
    """Return an event's JSON as one line of COPY text, in the column order of the table.

    Unknown top-level fields go to the last column. Raises `ValueError`.
    """
    extra = b""
    try:
        event: _Columns = _decode_only(raw)
    except msgspec.ValidationError:
        event, extra = _decode_with_extra(raw)
    head = encode_columns(_texts(event))
    data = bytes(event.data)
    return b"%b\t%b\t%b\n" % (head, b"{}" if data in _EMPTY else encode_json(data), extra)


def _encode_together(raws: Sequence[bytes]) -> list[bytes] | None:
    """Decode all events in one call; None if one has unknown fields or needs escaping."""
    try:
        events: Sequence[_Columns] = _decode_lines(b"\n".join(raws))
    except msgspec.MsgspecError:
        return None
    heads = split_columns(["\t".join(_texts(event)) for event in events], _TEXTS)
    if heads is None or len(events) != len(raws):
        return None
    data = [b"{}" if (text := bytes(event.data)) in _EMPTY else text for event in events]
    return list(map(b"\t".join, zip(heads, encode_jsons(data), repeat(b"\n"))))


def _texts(event: _Columns) -> tuple[str, ...]:
    """Return all columns before the JSON ones."""
    confidence = event.confidence
    return (
        event.id,
        event.tenant,
        event.event_type,
        event.workflow_type,
        event.workflow_id,
        event.task_id or "",
        event.user_id or "",
        event.agent_id or "",
        event.session_id or "",
        encode_time(event.timestamp),
        event.tool_id or "",
        _BOOLEAN[event.success],
        "" if confidence is None else str(confidence) if confidence > _LEAST else "0",
    )


def _decode_with_extra(raw: bytes) -> tuple[_Columns, bytes]:
    """Return an event, and its unknown fields as a JSON column."""
    try:
        event, fields = _decode_known(raw), _decode_fields(raw)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not an event: {error}") from error
    unknown = {name: value for name, value in fields.items() if name not in _KNOWN}
    return event, encode_json(msgspec.json.encode(unknown)) if unknown else b""


def touched_runs(lines: Sequence[bytes], /) -> list[bytes]:
    """Return a line of `episode_outbox` for each run in `encode_events`' lines.

    Columns are taken over as they are, escaped; times of one format are ordered as texts.
    """
    first: dict[tuple[bytes, bytes], bytes] = {}
    last: dict[tuple[bytes, bytes], bytes] = {}
    for line in lines:
        _, tenant, _, _, workflow_id, _, _, _, _, at, _ = line.split(b"\t", 10)
        run = tenant, workflow_id
        known = first.get(run)
        if known is None:
            first[run] = last[run] = at
        elif at < known:
            first[run] = at
        elif at > last[run]:
            last[run] = at
    return [b"%b\t%b\t%b\t%b\n" % (*run, at, last[run]) for run, at in first.items()]


def touched_tenants(touched: Iterable[bytes], /) -> set[str]:
    """Return the tenants of `touched_runs`' lines."""
    return {decode_column(name) for name in {line.split(b"\t", 1)[0] for line in touched}}


def maybe_packed(touched: Sequence[bytes], /) -> list[tuple[str, str]]:
    """Return (tenant, workflow id) of those runs in `touched_runs`' lines that have old events.

    Nothing of the last day is ever packed, so what comes at its time costs no query.
    """
    recent = encode_time(round((time.time() - _RECENT_S) * 1000)).encode()
    columns = (line.split(b"\t", 3) for line in touched)
    return [
        (decode_column(tenant), decode_column(workflow_id))
        for tenant, workflow_id, first, _last in columns
        if first < recent
    ]


class EpisodeSink(BatchWriter):
    """Stores validated events in `episodic_events`; unknown top-level fields go to `extra`.

    The runs that they belong to go to `episode_outbox`, from which the memory worker takes them.

    Example: `sink = await EpisodeSink.open(dsn)`, then `await sink.store(sink.encode(raws),
    {partition: next offset}, topic=..., epoch=..., on_refused=...)`.
    """

    consumer: ClassVar = EPISODES_GROUP
    sql: ClassVar = load_statements("episodes")
    encode = staticmethod(encode_events)
    touched = staticmethod(touched_runs)
    packable = staticmethod(maybe_packed)

    async def prepared(
        self, connection: AsyncConnection[Any], lines: Sequence[bytes], touched: Sequence[bytes], /
    ) -> Sequence[bytes]:
        """Return the lines with their texts sealed, if there is a key.

        Raises `EncryptionKeyMissing` and `UnusableEncryptionKey`: nothing is stored then.
        """
        keys = await keys_to_write(connection, touched_tenants(touched))
        return seal_lines(lines, keys) if keys.keys else lines


class EventOnlySink(EpisodeSink):
    """The same without the outbox: there is no memory worker that would empty it."""

    sql: ClassVar = {name: text for name, text in EpisodeSink.sql.items() if name != "copy_outbox"}
