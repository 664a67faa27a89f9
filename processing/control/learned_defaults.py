"""What is known of tenants' learned defaults, as control records said it: the newest of each.

A default is the state in which a tenant's next workflow type begins to learn. Every partition has
it; the first one also has the evidence of all partitions that it was merged from. Who merges, and
when, is `processing.control.default_merging`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import isfinite
from typing import Final

import msgspec

from learners.policy import Policy, State, layout_error, spec
from processing.control.latest_by_subject import LatestBySubject
from processing.control.learner_assignments import named_policy
from processing.state.counters import seeded
from processing.state.packed_state import ContextNumbers
from processing.state.rows import DEFAULT, ContextRow, control_body, default_key, evidence_key
from topics.control.messages import Default, Evidence, LearnedState, Seeded

_NONE_OF: Final = "state: is none of {}: {}"
_encode = msgspec.msgpack.Encoder().encode
_decode_default = msgspec.msgpack.Decoder(Default).decode
_decode_evidence = msgspec.msgpack.Decoder(Evidence).decode


class LearnedDefaults(LatestBySubject[Default | Evidence]):
    """The defaults of one partition, and the evidence that it was sent."""

    def restore(self, key: bytes, raw: bytes) -> None:
        """Take up one row of the table."""
        self._held[key] = decode_default(raw) if key.startswith(DEFAULT) else decode_evidence(raw)

    def apply(self, said: Default | Evidence, offset: int) -> None:
        """Take over what was said unless something newer of the same is known.

        Raises `ValueError` where a state is none of its learner's.
        """
        if isinstance(said, Default):
            key = default_key(said.tenant)
            if said.learned is not None:
                state_in(said.learned)
        else:
            for known in said.known:
                policy = named_policy(known.learner)
                if policy is not None and policy.version == known.version:
                    _of_context(known.path, known)  # what is of another version is passed over
            key = evidence_key(said.tenant, said.partition)
        held = self._held.get(key)
        if held is None or (held.epoch, held.offset) < (said.epoch, said.offset):
            self._hold(key, said, _encode(said), offset)

    def state_of(self, tenant: str, policy: Policy) -> State | None:
        """Return the state that a tenant's default gives a policy; None where it gives none."""
        held = self._held.get(default_key(tenant))
        learned = held.learned if isinstance(held, Default) else None
        if learned is None:
            return None
        before = named_policy(learned.learner)
        if before is None or before.name != policy.name:
            return None
        return policy.migrated(learned.version, learned.state)


def decode_default(raw: bytes) -> Default:
    """Return a default from its row."""
    return _decode_default(control_body(raw))


def decode_evidence(raw: bytes) -> Evidence:
    """Return the evidence of a partition from its row."""
    return _decode_evidence(control_body(raw))


def state_in(learned: LearnedState) -> State:
    """Return a learner's state as this version reads it. Raises `ValueError` where it cannot."""
    policy = named_policy(learned.learner)
    if policy is None:
        raise ValueError(f"learner: there is no policy {learned.learner!r} in this version")
    state = policy.migrated(learned.version, learned.state)
    if state is None:
        why = layout_error(policy, learned.version, learned.state)
        raise ValueError(_NONE_OF.format(learned.learner, why))
    return state


def refuse_unsound(path: str, row: ContextRow) -> None:
    """Raise `ValueError` where this version knows that a state is none of its learner's.

    What another version of the software wrote, or of a learner that is not here, is passed over.
    """
    policy = named_policy(row.learner)
    if policy is not None and policy.version == row.policy_version:
        why = layout_error(policy, row.policy_version, row.state)
        if why is not None:
            raise ValueError(f"{path}: {_NONE_OF.format(row.learner, why)}")


def refuse_implausible(path: str, row: ContextRow) -> None:
    """Raise `ValueError` where no replay of this version makes such a row of a context."""
    if named_policy(row.learner) is None:
        raise ValueError(f"{path}: there is no policy {row.learner!r:.200} in this version")
    if not all(map(isfinite, (row.gain, row.cost, *row.state))):
        raise ValueError(f"{path}: a number is infinite or none")
    refuse_unsound(path, row)


def _of_context(path: str, learned: LearnedState) -> State:
    """Return what `state_in` does. Raises `ValueError` that names the context."""
    try:
        return state_in(learned)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def readable(known: Iterable[LearnedState], learner: str) -> list[tuple[State, int]]:
    """Return (state, outcomes) of those that one learner learned and this version can read."""
    found = []
    for each in known:
        if each.learner == learner:
            try:
                found.append((state_in(each), each.outcomes))
            except ValueError:
                continue
    return found


def seeded_state(seed: Seeded, policy: Policy) -> State:
    """Return the state of a context to be seeded, where `policy` learns. Raises `ValueError`."""
    read = _of_context(seed.path, seed)
    seeded(seed.outcomes, seed.speculated, seed.hits, seed.counts)
    if (named := named_policy(seed.learner)) is None or named.name != policy.name:
        raise ValueError(
            f"learner: {seed.path} is learned by {spec(policy)} here, not {seed.learner}; "
            "choose it first: headstart learner choose"
        )
    return read


def plant(numbers: ContextNumbers, seed: Seeded, state: State) -> None:
    """Put into a context's numbers what a seed says of it, but for its time."""
    numbers.state = state
    numbers.counts = seeded(seed.outcomes, seed.speculated, seed.hits, seed.counts)
    if seed.counts:
        numbers.gain, numbers.cost = seed.gain, seed.cost


def seeded_below(
    seeds: Sequence[Seeded], place: int, policy: Policy, known: Callable[[str], object | None]
) -> State:
    """Return the state that one of several seeds gives its context.

    Raises `ValueError` where the context above is neither `known` nor seeded before.
    """
    seed = seeds[place]
    state, above = seeded_state(seed, policy), seed.path.rpartition("/")[0]
    if above and all(each.path != above for each in seeds[:place]) and known(above) is None:
        raise ValueError(f"path: {above} is not there, which is above {seed.path}")
    return state
