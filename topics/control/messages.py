"""Control records in `headstart.events`: what changes what is learned, the same in every partition.

A control record has the header `headstart.control` and is for the threshold agent's group alone.
It takes effect at its offset, so a replay sees it at the same one. Here: its form, its signature,
and the record to be sent. What it does is processing's affair, who sends it that of `control_log`.
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable, Sequence
from typing import Annotated, Final

import msgspec

from headstart.events.schema import LAST_MS, MAX_IDENTIFIER, UnixMs
from topics.catalogue import THRESHOLDS_GROUP
from topics.dead_letters.messages import GROUP_HEADER, OutgoingRecord

CONTROL_HEADER: Final = "headstart.control"
SIGNATURE_HEADER: Final = "headstart.signature"
CONTROL_KEY: Final = b"@control"
"""Key of every control record; no event has it, for it lacks the separator."""
MAX_PATTERN: Final = 2_048
"""Longest pattern, in characters."""

_Time = Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]
_Now = Annotated[int, msgspec.Meta(ge=UnixMs.__metadata__[0].min, le=LAST_MS)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
_Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PATTERN)]
_Path = _Pattern
_Tenant = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_IDENTIFIER, pattern=r"^[^\x00\x1f]*\Z")
]
"""As of events: with a separator in it, it would be another tenant's once its row is read back."""
_Learner = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
_State = Annotated[tuple[float, ...], msgspec.Meta(max_length=1_000)]


class LearnerChoice(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="learner"
):
    """Which policy learns in the contexts that a pattern holds for.

    `pattern`: see `processing.control.learner_assignments`. `learner`: a specification of
    `learners.registry`; None takes an earlier choice of the same pattern back. `tenant`: whose
    contexts; None: everybody's. Of two choices with one pattern and tenant the later (`at`, Unix
    ms, then `id`) holds, whichever arrives last: so a record may be sent as often as it takes.
    """

    id: _Id
    at: _Time
    pattern: _Pattern
    learner: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    tenant: _Tenant | None = None


class LearnedState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A learner's state. `version`: of its layout; `outcomes`: how many it was learned from."""

    learner: _Learner
    version: Annotated[int, msgspec.Meta(ge=0, lt=2**15)]
    state: _State
    outcomes: _Count


class TypeEvidence(LearnedState, frozen=True, forbid_unknown_fields=True, gc=False):
    """What is learned of one workflow type. `path`: its context path."""

    path: _Path


class Evidence(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="evidence"
):
    """What a partition has learned of a tenant's workflow types, for the tenant's default.

    It follows from the partition's rows at (`epoch`, `offset`): the highest holds, and no two of
    one place differ. Only in the first partition, whose owner merges.
    """

    id: _Id
    at: _Time
    tenant: _Tenant
    partition: _Count
    epoch: _Count
    offset: _Offset
    known: tuple[TypeEvidence, ...]


class Default(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="default"
):
    """In what state a tenant's next workflow type begins; `learned` None: as without a default.

    It follows from the first partition's rows at (`epoch`, `offset`): the highest holds.
    """

    id: _Id
    at: _Time
    tenant: _Tenant
    epoch: _Count
    offset: _Offset
    learned: LearnedState | None = None


class Reset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="reset"):
    """Which contexts are forgotten, to learn anew: those that a pattern holds for, as a choice's.

    Of one pattern and tenant the latest counts (`at`, Unix ms, then `id`), so a repetition of it,
    or an earlier one that comes after it, forgets nothing more.
    """

    id: _Id
    at: _Time
    pattern: _Pattern
    tenant: _Tenant | None = None


class Seeded(LearnedState, frozen=True, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """What a context is to have learned. `path`: whose; counts as `headstart thresholds export`.

    The rest may be missing, as in exports of old. `at`: event time of the newest outcome, Unix ms;
    `gain` and `cost`: moving averages, ms; `counts`: all of `topics.schema.json_schema.Counts`, in
    its order.
    """

    path: _Path
    speculated: _Count
    hits: _Count
    at: _Time | None = None
    gain: _Milliseconds = 0.0
    cost: _Milliseconds = 0.0
    counts: tuple[_Count, ...] = ()


class Seed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="seed"):
    """What contexts of a tenant are to have learned, coarse before fine; for their own partition.

    Of one tenant the later (`at`, `id`, `place`) counts: the records of an import have one `at` and
    `id`, and `place` counts them, so a repetition of one changes nothing.
    """

    id: _Id
    at: _Time
    tenant: _Tenant
    place: _Count
    contexts: tuple[Seeded, ...]


class Staged(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="staged"
):
    """Rows of a partition of the table as a rebuild found them: (key, row) each, in base64.

    They do nothing until the `Rebuild` of the same `id` comes; `place` counts the records of one.
    `partition`: see `Rebuild`.
    """

    id: _Id
    at: _Time
    place: _Count
    rows: tuple[tuple[bytes, bytes], ...]
    partition: _Count | msgspec.UnsetType = msgspec.UNSET


class Rebuild(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="rebuild"
):
    """What a partition's table is from here on: staged rows, and what the log says since.

    `offset` of log `epoch`: the last that the staged rows have applied; `places`: how many records
    they came in; `digest`: see `processing.rebuild`; `rules`: of whoever made them, which have to
    be ours; `choice`: the learner of some contexts, as if chosen before the log began. Of two the
    later (`at`, `id`) counts, so a repetition changes nothing. `partition`: the only partition in
    which it counts, set by `control_records`, so that a signed record cannot be copied into another
    one. Earlier versions did not write it: see `processing.rebuild`.
    """

    id: _Id
    at: _Time
    epoch: _Count
    offset: _Offset
    places: _Count
    digest: Annotated[str, msgspec.Meta(max_length=64)]
    rules: Annotated[str, msgspec.Meta(max_length=64)]
    choice: LearnerChoice | None = None
    partition: _Count | msgspec.UnsetType = msgspec.UNSET


class Downweight(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="weigh"
):
    """How far a user's outcomes count in the contexts above their own, whose `path` this is.

    One in `every` does, of those that arrive before `until` (Unix ms); 1: all do again. Of one
    tenant and path the later (`at`, then `id`) holds, so a repetition changes nothing.
    """

    id: _Id
    at: _Time
    tenant: _Tenant
    path: _Path
    every: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    until: _Time


class Clock(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="clock"):
    """What time it is by the clock of the worker that owns the partition: `at`, Unix ms.

    Contexts, starts, weighings and positions of spools expire by it, not by what events say. Only
    ever in the partition that the worker owns; a repetition, or one that comes late, does no harm.
    """

    id: _Id
    at: _Now


Control = LearnerChoice | Evidence | Default | Reset | Seed | Staged | Rebuild | Downweight | Clock
"""Every kind of control record."""

_decode = msgspec.json.Decoder(Control).decode


def is_control(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether a record's headers say that it is no event but a control record."""
    return any(name == CONTROL_HEADER for name, _value in headers)


def decode_control(value: bytes) -> Control:
    """Return the control record in `value`. Raises `ValueError` with what is wrong."""
    try:
        control: Control = _decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a control record: {error}") from error
    return control


def signature(value: bytes, operators_key: bytes) -> bytes:
    """Return the signature of a control record's bytes: HMAC-SHA256, in hex."""
    return hmac.new(operators_key, value, "sha256").hexdigest().encode()


def control_records(
    control: Control, partitions: Sequence[int], operators_key: bytes | None
) -> list[OutgoingRecord]:
    """Return the records that bring it into partitions, signed where there is a key.

    Those of a rebuild name their partition, which the signature covers.
    """
    return [_outgoing(control, partition, operators_key) for partition in partitions]


def _outgoing(control: Control, partition: int, operators_key: bytes | None) -> OutgoingRecord:
    if isinstance(control, Staged | Rebuild):
        control = msgspec.structs.replace(control, partition=partition)
    value = msgspec.json.encode(control)
    headers = [(GROUP_HEADER, THRESHOLDS_GROUP.encode()), (CONTROL_HEADER, b"1")]
    if operators_key is not None:
        headers.append((SIGNATURE_HEADER, signature(value, operators_key)))
    return OutgoingRecord(partition, CONTROL_KEY, value, headers)


def refuse_misplaced(control: Control, partition: int) -> None:
    """Raise `ValueError` where a control record was made for another partition than the given one.

    The other kinds do no harm there: choices, resets and defaults are for every partition, seeds
    and weighings name contexts, of which each partition takes its own, and a clock record says the
    time of a worker, which is the same everywhere.
    """
    if isinstance(control, Staged | Rebuild):
        right = control.partition
    else:
        right = 0 if isinstance(control, Evidence) else msgspec.UNSET
    if right is not msgspec.UNSET and right != partition:
        raise ValueError(
            f"partition: the record was made for partition {right} and is in {partition}; a control"
            " record must not be copied, give the command that sent it again"
        )
