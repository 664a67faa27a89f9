"""Notices: what is told of a context once, when it changes (`headstart.notices`). Pure.

Those of learned contexts are found by `processing.notices`, those of overrides follow from the
log of commands, here.
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
"""How long after an override was set or expired that is still told, of a log found for the first
time: what was set long ago is no news."""

Kind = Literal["threshold_converged", "drift", "anomaly", "override_set", "override_expired"]
KINDS: Final[tuple[str, ...]] = get_args(Kind)

_LARGEST: Final = 2**62
"""What is larger is no time, and nothing that a database could hold."""

_NAMESPACE: Final = UUID("6f0c2f0e-6d9b-4a39-9d3f-3f7c3e0f3a11")


class Notice(msgspec.Struct, kw_only=True):
    """Something that changed, and what speaks for it.

    `id` follows from what changed, so a notice that comes twice has the same one: drop what you
    have seen. `path` "" is the whole workflow type. `at`: time of the newest outcome that
    showed it, or when an override was set or expired, Unix ms. `evidence`: see docs/notices.md.
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
    """Return the id of a notice: of its kind there is one about a place, an UUID of version 5."""
    return str(uuid5(_NAMESPACE, SEPARATOR.join((kind, *map(str, place)))))


def encode_notice(notice: Notice) -> bytes:
    """Return a notice's record."""
    return _encode(notice)


def decode_notice(raw: bytes) -> Notice:
    """Return the notice of a record. Raises `ValueError`."""
    try:
        return _decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a notice: {error}") from error


def notice_record(notice: Notice, partition: int) -> OutgoingRecord:
    """Return the record to be sent, in the partition of the context's events."""
    key = threshold_key(notice.tenant, notice.path)
    return OutgoingRecord(partition, key, encode_notice(notice), [])


def downweight_for(notice: Notice) -> Downweight | None:
    """Return the control record that belongs to a notice: that of a user who floods, or no longer.

    It follows from the notice alone, so whoever sends it again says the same.
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
    """What is to be told of overrides, after a prefix of `headstart.commands`.

    Every record that sets one is told, and each one's end where nothing took it back before. What
    stands in front of the log's beginning was set in an earlier life of it, and told then; an end
    is known by what ended, so both lives say the same of it.
    """

    def __init__(self) -> None:
        self._begun = False
        self._ending: dict[bytes, ThresholdOverride] = {}
        self._due: dict[str, Notice] = {}

    def apply(self, key: bytes | None, value: bytes | None, offset: int, timestamp: int) -> None:
        """Take the next record, `timestamp` being its own. What is no command says nothing."""
        try:
            command = None if value is None else decode_command(value)
        except ValueError:
            return  # the threshold worker that follows the log says so
        if key is None or (command is not None and command_key(command) != key):
            return
        before = self._ending.pop(key, None)
        if before is not None and before.until is not None and before.until <= timestamp:
            self._tell_of_end(before)
        if isinstance(command, Begin):
            self._begun = True
        if not isinstance(command, ThresholdOverride):
            return
        if not (0 <= command.at < _LARGEST and 0 <= (command.until or 0) < _LARGEST):
            return
        if self._begun:
            self._tell("override_set", command, command.at, offset)
        if command.until is not None:
            self._ending[key] = command

    def due(self, now: int) -> list[Notice]:
        """Return what is to be told at `now`, Unix ms: also what was returned before."""
        for key, each in list(self._ending.items()):
            if each.until is not None and each.until <= now:
                del self._ending[key]
                self._tell_of_end(each)
        oldest = now - OVERRIDES_FOR_MS
        self._due = {name: each for name, each in self._due.items() if each.at > oldest}
        return list(self._due.values())

    def _tell_of_end(self, override: ThresholdOverride) -> None:
        assert override.until is not None, "only what ends is kept"
        self._tell("override_expired", override, override.until, "")

    def _tell(self, kind: Kind, override: ThresholdOverride, at: int, offset: int | str) -> None:
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
