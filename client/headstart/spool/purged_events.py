"""What is left of the files of a spool without purged events. No files, no clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import orjson

from headstart.spool.segment_format import (
    HEADER_BYTES,
    SegmentTail,
    find_record,
    pack_record,
    pack_seal,
    scan,
    unpack_header,
)

_SEAL_BYTES: Final = len(pack_seal(0))
_DEFAULT: Final = "default"
"""The tenant of events that name none."""


class SpoolSubject(NamedTuple):
    """Whose events go: a user's, a session's, a workflow's, or all of a tenant; one of them."""

    tenant: str
    user_id: str | None = None
    session_id: str | None = None
    workflow_id: str | None = None
    whole_tenant: bool = False

    @property
    def names(self) -> dict[str, str]:
        """The names that are given, but the tenant's."""
        given = self._asdict().items()
        return {name: it for name, it in given if name.endswith("_id") and it is not None}

    def __str__(self) -> str:
        """Return it for people."""
        named = [f"{kind.removesuffix('_id')} {name!r} of " for kind, name in self.names.items()]
        return f"{''.join(named)}tenant {self.tenant!r}"


class PurgedEvents:
    """Which events go: the subject's; of a user also those of its runs that name no user."""

    def __init__(self, subject: SpoolSubject) -> None:
        """Raise `ValueError` unless the subject is one, with a name."""
        self._tenant, self._wanted = subject.tenant, subject.names
        if len(self._wanted) + subject.whole_tenant != 1:
            raise ValueError("give one of user_id, session_id, workflow_id and whole_tenant")
        if not (subject.tenant and all(self._wanted.values())):
            raise ValueError("the name of a tenant, user, session or workflow is empty")
        self._runs: set[object] = set()
        self._unnamed = subject.whole_tenant and subject.tenant == _DEFAULT
        texts = self._wanted.values() or [subject.tenant]
        self._texts = {text for each in texts for text in (orjson.dumps(each), _ascii(each))}

    def learn(self, event: bytes) -> None:
        """Note the run of an event of the user."""
        if "user_id" in self._wanted and self.names(event):
            self._runs.add(self._fields(event).get("workflow_id"))

    def names(self, event: bytes) -> bool:
        """Return whether an event names the subject."""
        fields = self._fields(event)
        return bool(fields) and all(fields.get(name) == it for name, it in self._wanted.items())

    def has_run_of(self, event: bytes) -> bool:
        """Return whether an event names no user, and is of a run of the user."""
        fields = self._fields(event)
        return (
            bool(fields) and not fields.get("user_id") and fields.get("workflow_id") in self._runs
        )

    def _fields(self, event: bytes) -> dict[str, object]:
        """Return the fields of an event of the tenant; none of another one."""
        try:
            found = orjson.loads(event)
        except orjson.JSONDecodeError:
            return {}
        same = isinstance(found, dict) and (found.get("tenant") or _DEFAULT) == self._tenant
        return found if same else {}

    def is_named_in(self, data: bytes) -> bool:
        """Return whether bytes that are no event hold the subject as a JSON string."""
        return any(each in data for each in self._texts)

    def may_be_in(self, data: bytes) -> bool:
        """Return whether bytes that are no event may be of the subject.

        Events of the default tenant need not name it, so parts of JSON may be its.
        """
        return self.is_named_in(data) or (self._unnamed and b'":' in data)


def _ascii(text: str) -> bytes:
    return json.dumps(text).encode()


class FileRest(NamedTuple):
    """What is left of a file, the positions that were removed, and whether damage is left."""

    data: bytes
    removed: list[int]
    unreadable: bool
    changed: bool


def file_without(
    data: bytes, subject: PurgedEvents, goes: Callable[[bytes], bool], *, may_be_torn: bool
) -> FileRest:
    """Return the rest of a file without the events that go.

    `may_be_torn`: it is the last segment, whose end may be part of an event whose `emit()` never
    returned; such a part goes if it names the subject. Other damage that may be of the subject
    stays, and is reported.
    """
    if not _is_segment(data):
        return _lines_without(data, subject, goes)
    kept, removed, unreadable = [data[:HEADER_BYTES]], [], False
    for each in _records(data):
        if each.event is not None and goes(each.event):
            removed.append(each.position)
            continue
        if each.event is None and subject.may_be_in(each.raw):
            if may_be_torn and each.at_end and subject.is_named_in(each.raw):
                continue
            unreadable = True
        kept.append(each.raw)
    rest = b"".join(kept)
    return FileRest(rest, removed, unreadable, len(rest) < len(data))


def _lines_without(data: bytes, subject: PurgedEvents, goes: Callable[[bytes], bool]) -> FileRest:
    """Return the rest of a file of quarantined events, one a line."""
    kept, removed, unreadable = [], [], False
    for number, line in enumerate(data.splitlines(keepends=True)):
        if goes(line):
            removed.append(number)
            continue
        unreadable = unreadable or (not _is_event(line) and subject.may_be_in(line))
        kept.append(line)
    return FileRest(b"".join(kept), removed, unreadable, bool(removed))


def _is_event(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def _is_segment(data: bytes) -> bool:
    """Return whether a file is a segment, also one whose header is damaged."""
    return unpack_header(data) is not None or bool(scan(data[HEADER_BYTES:], 0).records)


def file_events(data: bytes) -> Iterator[bytes]:
    """Yield the events of a segment, or of a file of quarantined events."""
    if not _is_segment(data):
        yield from data.splitlines()
        return
    for each in _records(data):
        if each.event is not None:
            yield each.event


class _Part(NamedTuple):
    """A record of a segment, or bytes that are none: a seal, or damage. `at_end`: nothing follows.

    `event`: None if it is no event.
    """

    position: int
    event: bytes | None
    raw: bytes
    at_end: bool = False


def _records(data: bytes) -> Iterator[_Part]:
    at = HEADER_BYTES
    while at < len(data):
        found = scan(data[at:], 0)
        for each in found.records:
            yield _Part(each.position, each.event, pack_record(*each))
        at += found.end
        if found.tail is SegmentTail.END:
            return
        if found.tail is SegmentTail.SEALED:
            yield _Part(0, None, data[at - _SEAL_BYTES : at])
            continue
        following = find_record(data[at:], 0)
        end = len(data) if following is None else at + following
        yield _Part(0, None, data[at:end], at_end=following is None)
        at = end
