"""Notices about changes of contexts (`headstart.notices`), and those about overrides. Pure.

`processing.notices` detects changes of learned contexts; notices about overrides are derived here
from the log of commands.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args
from uuid import UUID, uuid5

import msgspec

from headstart.keys import SEPARATOR, threshold_key
from topics.commands.messages import Begin, ThresholdOverride, command_key, decode_command
from topics.control.messages import Downweight
from topics.dead_letters.messages import OutgoingRecord

OVERRIDES_FOR_MS: Final = 7 * 86_400_000
"""How long after an override was set or expired its notice is still sent, when a log is read for
the first time."""

Kind = Literal["threshold_converged", "drift", "anomaly", "override_set", "override_expired"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)

_LARGEST: Final = 2**62
"""Larger times are invalid, and do not fit a database column."""

_NAMESPACE: Final = UUID("6f0c2f0e-6d9b-4a39-9d3f-3f7c3e0f3a11")


class Notice(msgspec.Struct, kw_only=True):
    """Something that changed, and what speaks for it.

    `id` follows from what changed, so a notice that comes twice has the same one: drop what you
    have seen. `path` "" is the whole workflow type. `at`: time of the newest outcome that
    showed it, or when an override was set or expired, Unix ms. `evidence`: see
    docs/reference/notices.md.
    """

    id: str
    kind: Kind
    tenant: str
    workflow_type: str
    path: str
    at: int
    evidence: dict[str, Any]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Notice).decode


def notice_id(kind: Kind, *place: str | int) -> str:
    """Return the id of a notice: a UUID of version 5 that follows from its kind and `place`."""
    return str(uuid5(_NAMESPACE, SEPARATOR.join((kind, *map(str, place)))))


def encode_notice(notice: Notice) -> bytes:
    """Return a notice as JSON."""
    return _encode(notice)


def decode_notice(raw: bytes) -> Notice:
    """Return the notice in a record's value. Raises `ValueError`."""
    try:
        return _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a notice: {error}") from error


def notice_record(notice: Notice, partition: int) -> OutgoingRecord:
    """Return the record to send, in the partition of the context's events."""
    key = threshold_key(notice.tenant, notice.path)
    return OutgoingRecord(partition, key, encode_notice(notice), [])


def downweight_for(notice: Notice) -> Downweight | None:
    """Return the control record of a notice that a user begins or stops flooding, else None.

    It follows from the notice alone, so resending it is harmless.
    """
    evidence = notice.evidence
    if notice.kind != "anomaly" or evidence.get("what") != "user":
        return None
    return Downweight(
        id=notice.id,
        at=notice.at,
        tenant=notice.tenant,
        path=notice.path,
        every=evidence["every"],
        until=evidence["until"],
    )


class OverrideNotices:
    """The notices about overrides after a prefix of `headstart.commands`.

    There is a notice for every record that sets an override, and for its expiry unless it was unset
    before. Overrides before the `Begin` record were set, and reported, in an earlier log. The id of
    an expiry follows from the override, so both logs give the same.
    """

    def __init__(self) -> None:
        self._begun = False
        self._ending: dict[bytes, ThresholdOverride] = {}
        self._due: dict[str, Notice] = {}

    def apply(self, key: bytes | None, value: bytes | None, offset: int, timestamp: int) -> None:
        """Apply the next record; `timestamp` is the record's. Invalid records are skipped."""
        try:
            command = None if value is None else decode_command(value)
        except ValueError:
            return  # the threshold worker that follows the log reports it
        if key is None or (command is not None and command_key(command) != key):
            return
        before = self._ending.pop(key, None)
        if before is not None and before.until is not None and before.until <= timestamp:
            self._add_expired(before)
        if isinstance(command, Begin):
            self._begun = True
        if not isinstance(command, ThresholdOverride):
            return
        if not (0 <= command.at < _LARGEST and 0 <= (command.until or 0) < _LARGEST):
            return
        if self._begun:
            self._add("override_set", command, command.at, offset)
        if command.until is not None:
            self._ending[key] = command

    def due(self, now: int) -> list[Notice]:
        """Return the notices due at `now`, Unix ms, including those returned before."""
        for key, each in list(self._ending.items()):
            if each.until is not None and each.until <= now:
                del self._ending[key]
                self._add_expired(each)
        oldest = now - OVERRIDES_FOR_MS
        self._due = {name: each for name, each in self._due.items() if each.at > oldest}
        return list(self._due.values())

    def _add_expired(self, override: ThresholdOverride) -> None:
        assert override.until is not None, "`_ending` holds only overrides that expire"
        self._add("override_expired", override, override.until, "")

    def _add(self, kind: Kind, override: ThresholdOverride, at: int, offset: int | str) -> None:
        where = override.tenant, override.workflow_type, override.path
        evidence = {
            "tool": override.tool,
            "speculate": override.speculate,
            "suggest": override.suggest,
            "until": override.until,
            "by": override.by.replace("\0", "\ufffd"),  # jsonb holds no NUL
            "reason": override.reason.replace("\0", "\ufffd"),
        }
        notice = Notice(
            id=notice_id(kind, *where, override.tool or "", at, offset),
            kind=kind,
            tenant=override.tenant,
            workflow_type=override.workflow_type,
            path=override.path,
            at=at,
            evidence=evidence,
        )
        self._due[notice.id] = notice
