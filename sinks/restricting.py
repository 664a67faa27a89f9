"""What Redis should serve of modes and overrides, where something else has written there. Pure.

The log of commands says what is served. But somebody in trouble may set a kill switch in Redis
itself, and it must not be taken back behind their back. So what no command has set, and what was
not served by us, is replaced only by what is at least as restrictive; else it is kept, and named.
A command given since then replaces what it is about.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import orjson

from headstart.answers import DEFAULT_SPECULATE, DEFAULT_SUGGEST
from headstart.contexts import MODES
from headstart.overrides import OVERRIDES_FIELD, Override, read_overrides
from topics.commands import CommandState, Place, served_overrides

_RANKS: Final = {b"off": 0, b"observe": 1, b"act": 2}
_LEAST: Final = 2
"""Of no mode: executors act."""
_NUMBERS: Final = re.compile(rb"(\d{1,19}) (\d{1,19})")

Fields = Mapping[bytes, bytes]


class Stored(NamedTuple):
    """What stands in Redis at a place. `served`: what we served there last, as JSON."""

    version: bytes | None
    served: bytes | None
    fields: Fields
    other_type: bool = False
    """Whether the key is no hash."""


class Merged(NamedTuple):
    """What is to be served. `changes`: of fields, None where one is to go.

    `served`: to be remembered as what we served. `kept`: what no command set and that stays,
    because it restricts.
    """

    changes: Mapping[bytes, bytes | None]
    served: bytes
    channel: str
    announcement: bytes
    kept: tuple[str, ...]


def version_in(raw: bytes | None) -> tuple[int, int]:
    """Return the version of what is served at a place; below every other where none is stored."""
    found = _NUMBERS.fullmatch(raw or b"")
    return (int(found[1]), int(found[2])) if found else (-1, -1)


def merged(state: CommandState, place: Place, stored: Stored, now: int) -> Merged:
    """Return what a place is to serve at `now`, Unix ms."""
    if place.kind == "mode":
        return _modes(state, place, stored)
    return _overrides(state, place, stored, now)


def _explicit(state: CommandState, place: Place, stored: Stored) -> set[str]:
    """Return what commands said something of since what is stored was served."""
    number, offset = version_in(stored.version)
    anew = state.version(place).number > number
    return {name for name, at in state.said(place).items() if anew or at > offset}


def _modes(state: CommandState, place: Place, stored: Stored) -> Merged:
    wanted = {field.encode(): mode.encode() for field, mode in state.modes(place).items()}
    explicit = {name.encode() for name in _explicit(state, place, stored)}
    ours = _decoded(stored.served, dict)
    changes: dict[bytes, bytes | None] = {}
    kept = []
    if stored.other_type and not wanted:
        kept.append("a key that is no hash")
    for field in sorted(stored.fields.keys() | wanted.keys()):
        found, want = stored.fields.get(field), wanted.get(field)
        text = (found or b"").decode(errors="backslashreplace")
        name = field.decode(errors="backslashreplace")
        if found == want:
            continue
        if field in explicit or ours.get(name) == text or _rank(want) <= _rank(found):
            changes[field] = want
        else:
            kept.append(f"mode {text:.64} of {name:.300}")
    served = {**stored.fields, **changes}
    modes = {
        field.decode(errors="replace"): mode.decode(errors="replace")
        for field, mode in sorted(served.items())
        if mode is not None
    }
    announcement = orjson.dumps({"tenant": place.tenant or None, "modes": modes})
    return Merged(changes, orjson.dumps(state.modes(place)), MODES, announcement, tuple(kept))


def _rank(mode: bytes | None) -> int:
    """Return how much a mode permits. What is no mode counts as off, as it does for readers."""
    return _LEAST if mode is None else _RANKS.get(mode, _RANKS[b"off"])


def _overrides(state: CommandState, place: Place, stored: Stored, now: int) -> Merged:
    wanted = served_overrides(state.overrides(place, now))
    entries: list[dict[str, Any]] = orjson.loads(wanted)
    explicit, known = _explicit(state, place, stored), entries + _decoded(stored.served, list)
    raw = stored.fields.get(OVERRIDES_FIELD.encode())
    kept = [
        each
        for each in _decoded(raw, list)
        if each not in known and _restricts(each, entries, now) and _name(each) not in explicit
    ]
    names = {_name(each) for each in kept}
    served = [each for each in entries if _name(each) not in names] + kept
    value = msgspec.json.encode(served) if served else None
    changes = {} if raw == value else {OVERRIDES_FIELD.encode(): value}
    said = tuple(f"override {msgspec.json.encode(each).decode():.300}" for each in kept)
    announcement = b'{"overrides":%b}' % (value or b"[]")
    return Merged(changes, wanted, "", announcement, said)


def _restricts(entry: Any, wanted: Sequence[Mapping[str, Any]], now: int) -> bool:
    """Return whether an override demands at least what is served of an unknown context, and at
    least what any command demands there."""
    read = read_overrides([entry])
    if not read or (read[0].until is not None and read[0].until <= now):
        return False
    speculate = max([DEFAULT_SPECULATE, *(each["speculate"] or 0.0 for each in wanted)])
    suggest = max([DEFAULT_SUGGEST, *(each["suggest"] or 0.0 for each in wanted)])
    return _at_least(read[0], speculate, suggest)


def _at_least(override: Override, speculate: float, suggest: float) -> bool:
    strict = override.speculate is not None and override.speculate >= speculate
    return strict and (override.suggest is None or override.suggest >= suggest)


def _name(entry: Mapping[str, Any]) -> str:
    return CommandState.name_of_override(entry.get("path") or "", entry.get("tool"))


def _decoded(raw: bytes | None, kind: type) -> Any:
    """Return the JSON in a value; nothing of the kind where there is none."""
    try:
        found = orjson.loads(raw) if raw else kind()
    except orjson.JSONDecodeError:
        return kind()
    if not isinstance(found, kind):
        return kind()
    if isinstance(found, list):
        return [each for each in found if isinstance(each, dict)]
    return found
