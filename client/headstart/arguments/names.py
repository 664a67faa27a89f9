"""Recognises misspelled keys of contexts and events.

These may have content under any name, so a misspelled key would be stored and not used. Tenant,
workflow type and ids are matched most broadly: a wrong one is unsafe.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final

from headstart.arguments.checks import OTHER_NAMES, InvalidArgument
from headstart.events.schema import Data, Decision, Prediction, Result
from headstart.keys import DEFAULT_LEVELS

FIELDS: Final = (
    "tenant", "workflow_type", "workflow_id", "task_id", "user_id", "agent_id", "session_id",
    "tool_id",
)  # fmt: skip
"""Fields of an event itself, which are not read from its context."""

_COUNTED: Final = frozenset((*FIELDS, *DEFAULT_LEVELS))
_CONTENT: Final = {
    name for part in (Data, Prediction, Result, Decision) for name in part.__annotations__
} - {*FIELDS} | {"guess", "gain", "cost", "execution_time"}
"""Names within an event's `data`, as the event or a constructor names them."""
_STRICT: Final = frozenset((*FIELDS, "tool", "event_type"))
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^A-Z\W_]+")
_REPEATED: Final = re.compile(r"(.)\1+")
_SHORT: Final = 6
"""Length below which a word without two of its letters is another word."""


@lru_cache(maxsize=1_000)
def misnamed(names: tuple[str, ...], known: frozenset[str]) -> tuple[str, str] | None:
    """Return the first name that is another spelling of a known one, with that one.

    Cached by the tuple of names: comparing is slow, and callers use the same keys repeatedly.
    Raises `InvalidArgument` for a name that is not a non-empty string.
    """
    for name in names:
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"a key of a context must be a non-empty string, not {name!r}")
        if name not in known and (meant := other_spelling(name, known)):
            return name, meant
    return None


@lru_cache(maxsize=1_000)
def other_spelling(name: str, known: frozenset[str]) -> str | None:
    """Return the known name that `name` is a spelling of; None if it is content."""
    words = _words(name)
    for written in (name, "_".join(words)):
        if (other := OTHER_NAMES.get(written)) in known:
            return other
    plain = "".join(words)
    for each in sorted(known):
        if plain == each.replace("_", ""):
            return each
    if "tenant" in known and _is_tenant(words, plain):
        return "tenant"
    for each in sorted(known & _STRICT):
        if _near(words, each.split("_")):
            return each
    return _mistyped(name, known - _STRICT) or _one_letter_off(plain, known - _STRICT)


def refuse_nested(context: Mapping[str, object]) -> None:
    """Raise `InvalidArgument` for a context within the context, which would be ignored."""
    if "context" in context and isinstance(context["context"], Mapping):
        raise InvalidArgument(
            "the context has a mapping under 'context'; its keys stand beside workflow_type, "
            "as in {'workflow_type': 'refund', 'domain': 'retail'}"
        )


def refuse_fields(callee: str, context: Mapping[str, object], known: Collection[str]) -> None:
    """Raise `InvalidArgument` for a key of an event's context that would be ignored.

    That is a field such as `user_id`, which is read from the event itself, or a misspelling of a
    field or level. `known`: the arguments of `callee`. Keys in HEADSTART_LEVELS are accepted.
    """
    for name, meant in _not_content(tuple(context)):
        if name not in FIELDS and name in os.environ.get("HEADSTART_LEVELS", "").split(","):
            continue
        fix = f"did you mean {meant!r}?"
        if meant in FIELDS:
            fix = f"give {meant}= to {callee if meant in known else 'task_complete'}()"
        raise InvalidArgument(f"{callee}(): {name!r} does not count within context; {fix}")
    refuse_nested(context)


@lru_cache(maxsize=1_000)
def _not_content(names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return (name, meant) of the names that are fields or misspellings."""
    found = []
    for name in names:
        if name in FIELDS:
            found.append((name, name))
        elif wrong := misnamed((name,), _COUNTED):
            found.append(wrong)
    return tuple(found)


@lru_cache(maxsize=1_000)
def refuse_content(names: tuple[str, ...], fields: frozenset[str]) -> None:
    """Raise `InvalidArgument` for a keyword of `emit` that would be stored and not used.

    `fields`: of an event. Other names are the caller's content.
    """
    known = fields | _CONTENT
    for name in names:
        if name in fields:
            continue
        meant = "workflow_type" if name == "workflow_name" else other_spelling(name, known)
        if name in _CONTENT or meant in _CONTENT:
            raise InvalidArgument(
                f"emit() has no argument {name!r}: it would be stored and not used; use a "
                "constructor, such as headstart.task_complete(...), or data={...}"
            )
        if meant is not None:
            raise InvalidArgument(
                f"emit() has no argument {name!r}; did you mean {meant!r}? "
                "Content of your own belongs into data={...}"
            )


def _words(name: str) -> tuple[str, ...]:
    """Return the lower-case words of a name, such as `user_id`, `user-id` or `userId`."""
    return tuple(word.casefold() for word in _WORDS.findall(name))


def _is_tenant(words: tuple[str, ...], plain: str) -> bool:
    """Return whether a name is about the tenant: `tenants`, `tenant_name`, `tennantId`."""
    if _single(plain).startswith("tenan") or plain.endswith("tenantid"):
        return True
    first = words[0] if len(words) > 1 else plain.removesuffix("s").removesuffix("id")
    return _near_word(first, "tenant")


def _near(words: Iterable[str], wanted: list[str]) -> bool:
    given = list(words)
    if len(given) == len(wanted):
        return all(map(_near_word, given, wanted))
    whole, limit = "".join(given), 2
    if len(wanted[0]) < _SHORT and not whole.endswith(("id", "ids")):
        limit = 1  # `taskkind` is content
    return _near_word(whole, "".join(wanted), limit)


def _near_word(given: str, wanted: str, limit: int = 2) -> bool:
    """Return whether a word is `wanted` with up to `limit` letters inserted or deleted.

    A wrong letter is one of each. A short word with another first letter (`pool`, `mask`) or with
    missing letters (`to`) does not match, nor `id` with most endings.
    """
    if len(wanted) < _SHORT and len(given) < len(wanted) - 1:
        return False
    given, wanted = _single(given), _single(wanted)
    if given == wanted or (sorted(given) == sorted(wanted) and _edits(given, wanted) <= limit):
        return True
    if wanted == "id":
        return given in ("ids", "i", "ide", "ido", "ifd", "isd")
    if len(wanted) < _SHORT:
        limit = limit if given[:1] == wanted[0] else 1
    return abs(len(given) - len(wanted)) <= limit and _edits(given, wanted) <= limit


def _mistyped(name: str, known: frozenset[str]) -> str | None:
    """Return the known name of the same length that differs by one or two letters."""
    alike = [each for each in known if len(each) == len(name)]
    found = difflib.get_close_matches(name, alike, n=1, cutoff=0.8)
    return found[0] if found else None


def _one_letter_off(plain: str, known: frozenset[str]) -> str | None:
    """Return the long name with one letter inserted or deleted, unless that is a plural."""
    for each in sorted(known):
        whole = each.replace("_", "")
        alike = len(whole) >= _SHORT and abs(len(plain) - len(whole)) == 1
        if alike and plain != f"{whole}s" and _edits(plain, whole) == 1:
            return each
    return None


def _single(word: str) -> str:
    return _REPEATED.sub(r"\1", word)


def _edits(one: str, other: str) -> int:
    """Return how many insertions and deletions turn one word into the other."""
    row = list(range(len(other) + 1))
    for count, letter in enumerate(one, start=1):
        before, row[0] = row[0], count
        for place, wanted in enumerate(other, start=1):
            fewer = min(row[place], row[place - 1]) + 1
            before, row[place] = row[place], before if letter == wanted else fewer
    return row[-1]
