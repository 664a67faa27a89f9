"""Merges modes and overrides of the log with those set by hand in Redis. Pure.

The log of commands is the source of truth. But an operator in an emergency may set a kill switch in
Redis itself, and it must not be undone silently. So a value that neither a command nor Headstart
wrote is replaced only by one that is at least as restrictive; else it is kept and reported. A later
command for the same key replaces it. Unreadable values restrict as they do for readers: a key of
modes that is not a hash is `off`, and an unreadable override starts nothing, in the whole target
unless its path and tool can be read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from headstart.keys import MODES
from headstart.thresholds.overrides import (
    OVERRIDES_FIELD,
    UNREACHABLE,
    Override,
    path_parts,
    read_overrides,
)
from headstart.thresholds.threshold import DEFAULT_SPECULATE, DEFAULT_SUGGEST
from sinks.redis.modes_marker import without_marker
from topics.commands.messages import LARGEST_NUMBER, CommandState, CommandTarget, served_overrides

_RANKS: Final = {b"off": 0, b"observe": 1, b"act": 2}
_LEAST: Final = 2
"""The rank without a mode: executors act."""
_EVERY_AGENT: Final = b"*"
_NUMBERS: Final = re.compile(rb"(\d{1,19}) (\d{1,19})")

Fields = Mapping[bytes, bytes]


class StoredRestriction(NamedTuple):
    """What Redis stores for a target. `served`: what Headstart wrote there last, as JSON."""

    version: bytes | None
    served: bytes | None
    fields: Fields
    other_type: bool = False
    """Whether the key is not a hash."""


class Merged(NamedTuple):
    """What to serve. `changes`: by field, None deletes it.

    `served`: to store as what Headstart wrote. `kept`: restrictions set by hand that are kept.
    """

    changes: Mapping[bytes, bytes | None]
    served: bytes
    channel: str
    announcement: bytes
    kept: tuple[str, ...]


def version_in(raw: bytes | None) -> tuple[int, int]:
    """Return the stored version of a target, below every other if there is none.

    One with an impossible log number counts as none: it would be the newest for ever.
    """
    found = _NUMBERS.fullmatch(raw or b"")
    if not found or int(found[1]) > LARGEST_NUMBER:
        return -1, -1
    return int(found[1]), int(found[2])


def merged(
    state: CommandState, place: CommandTarget, stored: StoredRestriction, now: int
) -> Merged:
    """Return what to serve for a target at `now`, Unix ms."""
    if place.kind == "mode":
        return _modes(state, place, stored)
    return _overrides(state, place, stored, now)


def _explicit(state: CommandState, place: CommandTarget, stored: StoredRestriction) -> set[str]:
    """Return the names with a command that is newer than the stored version.

    Commands before the `Begin` record do not count: they are copies of what Redis served.
    """
    number, offset = version_in(stored.version)
    since = state.begun
    if number >= state.version(place).number:
        since = max(since, offset)
    return {name for name, at in state.last_offsets(place).items() if at > since}


def _modes(state: CommandState, place: CommandTarget, stored: StoredRestriction) -> Merged:
    wanted = {field.encode(): mode.encode() for field, mode in state.modes(place).items()}
    explicit = {name.encode() for name in _explicit(state, place, stored)}
    ours = _decoded(stored.served, dict)
    there = without_marker(place.tenant, stored.fields)
    changes: dict[bytes, bytes | None] = {}
    kept = []
    if stored.other_type:
        # Readers take all of its fields for off, and it can only be replaced as a whole.
        if _EVERY_AGENT in explicit or wanted.get(_EVERY_AGENT) == b"off":
            changes[_EVERY_AGENT] = None  # deletes the key if no mode is wanted
        else:
            kept, wanted = ["a key that is not a hash: off applies"], {}
    for field in sorted(there.keys() | wanted.keys()):
        found, want = there.get(field), wanted.get(field)
        text = (found or b"").decode(errors="backslashreplace")
        name = field.decode(errors="backslashreplace")
        if found == want:
            continue
        if field in explicit or ours.get(name) == text or _rank(want) <= _rank(found):
            changes[field] = want
        else:
            kept.append(f"mode {text:.64} of {name:.300}")
    served = {**there, **changes}
    modes = {
        field.decode(errors="replace"): mode.decode(errors="replace")
        for field, mode in sorted(served.items())
        if mode is not None
    }
    announcement = orjson.dumps({"tenant": place.tenant or None, "modes": modes})
    return Merged(changes, orjson.dumps(state.modes(place)), MODES, announcement, tuple(kept))


def _rank(mode: bytes | None) -> int:
    """Return how much a mode permits. An invalid one counts as off, as it does for readers."""
    return _LEAST if mode is None else _RANKS.get(mode, _RANKS[b"off"])


def _overrides(
    state: CommandState, place: CommandTarget, stored: StoredRestriction, now: int
) -> Merged:
    wanted = served_overrides(state.overrides(place, now))
    entries: list[dict[str, Any]] = orjson.loads(wanted)
    explicit, known = _explicit(state, place, stored), entries + _decoded(stored.served, list)
    raw = stored.fields.get(OVERRIDES_FIELD.encode())
    there = _elements(raw)
    if there is None and _name(Override()) not in explicit:
        # Left unchanged: as an entry of a list it might be read differently.
        shown = f"overrides {(raw or b'').decode(errors='backslashreplace'):.300}: nothing starts"
        return Merged({}, wanted, "", b"", (shown,))
    kept, reads = [], []
    for each in there or []:
        read = _read(each)
        stays = _name(read) not in explicit and _restricts(read, entries, now)
        if stays and not _is_among(each, read, known):
            kept.append(each)
            reads.append(read)
    places = [_place(each) for each in kept]
    stops = [r for r, at in zip(reads, places, strict=True) if at == (r.path, r.tool)]
    served = [
        each
        for each in entries
        if _place(each) not in places
        and (each in (there or []) or _name(_read(each)) in explicit or not _stopped(each, stops))
    ] + kept
    value = msgspec.json.encode(served) if served else None
    changes = {} if raw == value else {OVERRIDES_FIELD.encode(): value}
    descriptions = tuple(f"override {msgspec.json.encode(each).decode():.300}" for each in kept)
    announcement = b'{"overrides":%b}' % (value or b"[]")
    return Merged(changes, wanted, "", announcement, descriptions)


def _elements(raw: bytes | None) -> list[Any] | None:
    """Return the overrides in a field's value; None if it is not a list, so that nothing starts."""
    try:
        found = [] if raw is None else orjson.loads(raw)
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, list) else None


def _is_among(entry: Any, read: Override, known: Sequence[Any]) -> bool:
    """Return whether an override is equivalent to one in `known`."""
    return any(
        read == _read(each) and (read.speculate != UNREACHABLE or entry == each) for each in known
    )


def _place(entry: Any) -> tuple[Any, Any] | None:
    """Return the path and tool of an override; None if it has none."""
    if not isinstance(entry, dict):
        return None
    path = entry.get("path")
    return ("" if path is None else path, entry.get("tool"))


def _stopped(entry: Mapping[str, Any], kept: Sequence[Override]) -> bool:
    """Return whether an override would allow what one of `kept`, of a coarser path, stops.

    The finer override would apply as a whole.
    """
    return any(
        each.speculate == UNREACHABLE
        and path_parts(each.path) <= path_parts(entry["path"])
        and each.tool in (None, entry["tool"])
        for each in kept
    )


def _read(entry: Any) -> Override:
    (read,) = read_overrides([entry])
    return read


def _restricts(read: Override, wanted: Sequence[Mapping[str, Any]], now: int) -> bool:
    """Return whether an override is at least as strict as the default and as every command."""
    if read.until is not None and read.until <= now:
        return False
    if read.speculate == UNREACHABLE:
        return True
    speculate = max([DEFAULT_SPECULATE, *(each["speculate"] or 0.0 for each in wanted)])
    suggest = max([DEFAULT_SUGGEST, *(each["suggest"] or 0.0 for each in wanted)])
    return _at_least(read, speculate, suggest)


def _at_least(override: Override, speculate: float, suggest: float) -> bool:
    strict = override.speculate is not None and override.speculate >= speculate
    return strict and (override.suggest is None or override.suggest >= suggest)


def _name(override: Override) -> str:
    return CommandState.name_of_override(override.path, override.tool)


def _decoded(raw: bytes | None, kind: type) -> Any:
    """Return the JSON in a value; an empty `kind` if it is missing or invalid."""
    try:
        found = orjson.loads(raw) if raw else kind()
    except orjson.JSONDecodeError:
        return kind()
    if not isinstance(found, kind):
        return kind()
    if isinstance(found, list):
        return [each for each in found if isinstance(each, dict)]
    return found
