"""Control records in `headstart.events`: format, signature, and the records to send.

A control record changes what is learned. It has the header `headstart.control`, is for the
threshold group alone, and takes effect at its offset, so a replay applies it at the same one.
`processing.control` applies them, `topics.control.log` sends them.
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
"""Key of every control record; no event has it, because it lacks the separator."""
MAX_PATTERN: Final = 2_048
"""Length limit of a pattern, in characters."""
MAX_RUNS: Final = 2_000
"""Most runs that one purge names; of more, there are several purges."""

_Time = Annotated[int, msgspec.Meta(ge=0, le=LAST_MS)]
_Now = Annotated[int, msgspec.Meta(ge=UnixMs.__metadata__[0].min, le=LAST_MS)]
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
_Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_PATTERN)]
_Path = _Pattern
_Tenant = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_IDENTIFIER, pattern=r"^[^\x00\x1f]*\Z")
]
"""As in events: a tenant with a separator would be read back from a row as another tenant."""
_Identifier = _Tenant
_Learner = Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
_Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
_State = Annotated[tuple[float, ...], msgspec.Meta(max_length=1_000)]


class LearnerChoice(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="learner"
):
    """Which policy learns in the contexts that match a pattern.

    `pattern`: see `processing.control.learner_assignments`. `learner`: a specification of
    `learners.registry`; None revokes an earlier choice with the same pattern. `tenant`: None
    applies to all tenants. Of two choices with one pattern and tenant the later (`at`, Unix ms,
    then `id`) counts, in whichever order they arrive, so resending a record is harmless.
    """

    id: _Id
    at: _Time
    pattern: _Pattern
    learner: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    tenant: _Tenant | None = None


class LearnedState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, gc=False):
    """A learner's state. `version`: of its layout; `outcomes`: the number it was learned from."""

    learner: _Learner
    version: Annotated[int, msgspec.Meta(ge=0, lt=2**15)]
    state: _State
    outcomes: _Count


class TypeEvidence(LearnedState, frozen=True, forbid_unknown_fields=True, gc=False):
    """The learned state of one workflow type. `path`: its context path."""

    path: _Path


class DefaultEvidence(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="evidence"
):
    """A partition's learned state of a tenant's workflow types, input for the tenant's default.

    It follows from the partition's rows at (`epoch`, `offset`): the highest counts, and two with
    the same version are equal. Sent to partition 0 only, whose owner merges.
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
    """The initial state of a tenant's next workflow type; `learned` None: no default.

    It follows from the rows of partition 0 at (`epoch`, `offset`): the highest counts.
    """

    id: _Id
    at: _Time
    tenant: _Tenant
    epoch: _Count
    offset: _Offset
    learned: LearnedState | None = None


class Reset(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="reset"):
    """Deletes the learned state of the contexts that match a pattern (as in `LearnerChoice`).

    Of one pattern and tenant the latest counts (`at`, Unix ms, then `id`), so a repetition, or an
    earlier one that arrives later, deletes nothing more.
    """

    id: _Id
    at: _Time
    pattern: _Pattern
    tenant: _Tenant | None = None


class Seeded(LearnedState, frozen=True, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """The state to give to the context `path`, with fields as in `headstart thresholds export`.

    Fields with a default may be missing, as in old exports. `at`: event time of the newest outcome,
    Unix ms; `gain` and `cost`: moving averages, ms; `counts`: all of
    `topics.schema.json_schema.Counts`, in its order.
    """

    path: _Path
    speculated: _Count
    hits: _Count
    at: _Time | None = None
    gain: _Milliseconds = 0.0
    cost: _Milliseconds = 0.0
    counts: tuple[_Count, ...] = ()


class Seed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="seed"):
    """States to give to contexts of a tenant, coarse before fine; sent to their own partition.

    Of one tenant the later (`at`, `id`, `place`) counts. The records of one import share `at` and
    `id`, and `place` numbers them, so repeating one changes nothing.
    """

    id: _Id
    at: _Time
    tenant: _Tenant
    place: _Count
    contexts: tuple[Seeded, ...]


class Staged(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="staged"
):
    """Rows of a rebuilt partition of the table: (key, row) pairs in base64.

    They take effect with the `Rebuild` of the same `id`; `place` numbers its records. `partition`:
    see `Rebuild`.
    """

    id: _Id
    at: _Time
    place: _Count
    rows: tuple[tuple[bytes, bytes], ...]
    partition: _Count | msgspec.UnsetType = msgspec.UNSET


class Rebuild(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="rebuild"
):
    """Replaces a partition's table by the staged rows, plus the log since.

    `offset` of log `epoch`: the last one applied in the staged rows; `places`: number of `Staged`
    records; `digest`: see `processing.rebuild`; `rules`: learning configuration of the rebuild,
    which must equal the worker's; `choice`: the learner of some contexts, as if chosen before the
    log began. Of two the later (`at`, `id`) counts, so a repetition changes nothing. `partition`:
    set by `control_records`, so that a signed record cannot be copied to another partition. Earlier
    versions did not write it: see `processing.rebuild`.
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
    """Down-weights a user's outcomes in the contexts above the user's own, which is `path`.

    One in `every` counts until `until` (Unix ms, by arrival); 1: all count again. Of one tenant and
    path the later (`at`, then `id`) counts, so a repetition changes nothing.
    """

    id: _Id
    at: _Time
    tenant: _Tenant
    path: _Path
    every: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    until: _Time


class Clock(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="clock"):
    """The time (`at`, Unix ms) by the clock of the worker that owns the partition.

    Contexts, open predictions, down-weights and spool positions expire by it, not by event times.
    Sent only to the worker's own partition; repeated or late records are harmless.
    """

    id: _Id
    at: _Now


class Purge(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="purge",
            omit_defaults=True):  # fmt: skip
    """Erases the events of a user, a session or a workflow, or all of a tenant.

    In each partition it covers the events of its subject that come before it, and later ones whose
    `timestamp` is not after `at` (Unix ms): what a spool still had. Exactly one of `user_id`,
    `session_id`, `workflow_id` and `whole_tenant` is set. `runs`: workflow ids whose events without
    a user id are covered too, because others of their events name the user. Of two with one subject
    both count, so a repetition changes nothing. `topics.control.purges` applies the rule.
    """

    id: _Id
    at: _Now
    tenant: _Tenant
    user_id: _Identifier | None = None
    session_id: _Identifier | None = None
    workflow_id: _Identifier | None = None
    whole_tenant: bool = False
    runs: Annotated[tuple[_Identifier, ...], msgspec.Meta(max_length=MAX_RUNS)] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` unless there is exactly one subject."""
        named = (self.user_id, self.session_id, self.workflow_id, self.whole_tenant or None)
        if sum(each is not None for each in named) != 1:
            raise ValueError(
                "a purge needs exactly one of user_id, session_id, workflow_id and whole_tenant"
            )
        if self.runs and self.user_id is None:
            raise ValueError("runs: only a purge of a user has them")


Control = (
    LearnerChoice
    | DefaultEvidence
    | Default
    | Reset
    | Seed
    | Staged
    | Rebuild
    | Downweight
    | Clock
    | Purge
)
"""Every kind of control record."""

_decode = msgspec.json.Decoder(Control).decode


def is_control(headers: Iterable[tuple[str, bytes | None]]) -> bool:
    """Return whether a record's headers mark it as a control record."""
    return any(name == CONTROL_HEADER for name, _value in headers)


def decode_control(value: bytes) -> Control:
    """Return the control record in `value`. Raises `ValueError` with the reason."""
    try:
        control: Control = _decode(value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"not a control record: {error}") from error
    return control


def signature(value: bytes, operators_key: bytes) -> bytes:
    """Return the HMAC-SHA256 of a control record's bytes, in hex."""
    return hmac.new(operators_key, value, "sha256").hexdigest().encode()


def control_records(
    control: Control, partitions: Sequence[int], operators_key: bytes | None
) -> list[OutgoingRecord]:
    """Return the records to send to `partitions`, signed if there is a key.

    Records of a rebuild contain their partition, which the signature covers.
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
    """Raise `ValueError` if a control record was made for another partition than `partition`.

    Only rebuilds and evidence are bound to one. Choices, resets, purges and defaults are for all;
    seeds and down-weights name contexts, and each partition applies those it owns; the time is the
    same everywhere.
    """
    if isinstance(control, Staged | Rebuild):
        right = control.partition
    else:
        right = 0 if isinstance(control, DefaultEvidence) else msgspec.UNSET
    if right is not msgspec.UNSET and right != partition:
        raise ValueError(
            f"partition: the record was made for partition {right} and is in {partition}; a control"
            " record must not be copied, give the command that sent it again"
        )
