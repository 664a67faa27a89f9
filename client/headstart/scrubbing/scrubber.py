"""Removes secrets from events before they leave the machine; `patterns` defines them.

One search of an event's bytes recognises nearly every clean one; only a suspected event is decoded,
scrubbed value by value, and encoded again. Keys, numbers of the contract, and the fields that
identify an event are never changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from headstart.arguments.checks import InvalidArgument, choice, named_settings
from headstart.arguments.options import names_in
from headstart.events.schema import MAX_EVENT_BYTES, MAX_IDENTIFIER
from headstart.scrubbing.patterns import KEYS, PATTERNS, Pattern, find_cards, is_card

MARK: Final = "[scrubbed]"
"""Replaces a secret."""
SHORT_MARK: Final = "*"
"""Replaces a secret if the event would otherwise exceed its limit: no secret is shorter."""

KEPT: Final = frozenset(
    {
        "id", "event_type", "tenant", "workflow_type", "workflow_id", "task_id", "timestamp",
        "origin",
    }
)  # fmt: skip
"""Fields that identify and join events: never scrubbed, so put no secrets there."""
_NUMBERS: Final = frozenset({"confidence", "reward", "execution_time_ms", "gain_ms", "cost_ms"})

_FOLD: Final = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZ123456789-", b"abcdefghijklmnopqrstuvwxyz000000000_"
)
_RUN: Final = b"0" * 14
_GROUPS: Final = re.compile(b"0000[ _]0000(?:00[ _]0|[ _]0000[ _])").search
_FIRST_DIGITS: Final = b"23456"

Where = Literal["shipper", "emit", "off"]


@named_settings
@dataclass(frozen=True)
class Scrubbing:
    """What to scrub besides the built-in patterns, and where.

    Attributes:
        where: `shipper` (before events leave the machine; the spool on disk is not scrubbed),
            `emit` (before they are spooled, in the caller's thread), or `off`.
        keys: Further parts of key names whose values are secret, in upper or lower case.
        patterns: Further kinds of secrets.
        without: Names of built-in patterns to disable; `card` is one.

    Raises:
        InvalidArgument: Names the setting that cannot be used.
    """

    where: Where = "shipper"
    keys: tuple[str, ...] = ()
    patterns: tuple[Pattern, ...] = ()
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise `InvalidArgument` naming a setting that cannot be used."""
        choice("scrub", self.where, ("shipper", "emit", "off"))
        names_in("keys", self.keys)
        names_in("without", self.without)
        if isinstance(self.patterns, str) or not isinstance(self.patterns, Sequence):
            raise InvalidArgument(
                f"patterns must be a tuple of Pattern, not {self.patterns!r:.100}"
            )
        for pattern in self.patterns:
            if not isinstance(pattern, Pattern):
                raise InvalidArgument(f"patterns: each is a Pattern, not {pattern!r:.100}")
            try:
                pattern.compiled()
                re.compile((pattern.hint or "").encode())
            except re.error as error:
                raise InvalidArgument(f"the pattern {pattern.name!r} is wrong: {error}") from error
        known = {pattern.name for pattern in PATTERNS} | {"card"}
        if unknown := set(self.without) - known:
            raise InvalidArgument(
                f"no pattern is named {sorted(unknown)}; there are {sorted(known)}"
            )


def read_scrubbing(described: Mapping[str, Any]) -> Scrubbing:
    """Return the settings in a spool's description. Raises `TypeError`, `ValueError`."""
    patterns = tuple(Pattern(**each) for each in described.get("patterns", ()))
    lists = {name: tuple(described.get(name, ())) for name in ("keys", "without")}
    return Scrubbing(described.get("where", "shipper"), patterns=patterns, **lists)


def scrubber(scrubbing: Scrubbing, here: Where) -> Scrubber | None:
    """Return a scrubber if these settings scrub `here`, else None."""
    return Scrubber(scrubbing) if scrubbing.where == here else None


def fold(data: bytes) -> bytes:
    """Fold bytes for hints: lower case, digits as 0, hyphens as _."""
    return data.translate(_FOLD)


class Scrubber:
    """Applies one `Scrubbing`. Not thread-safe."""

    def __init__(self, scrubbing: Scrubbing) -> None:
        self.counts: Counter[str] = Counter()
        """Number of replaced values, by the name of the pattern, or `key`."""
        self.replaced = 0
        self._cards = "card" not in scrubbing.without
        patterns = [each for each in PATTERNS if each.name not in scrubbing.without]
        patterns += scrubbing.patterns
        self._patterns = [(each.name, each.compiled()) for each in patterns]
        names = [re.escape(name) for name in scrubbing.keys]
        self._keys = re.compile("|".join([KEYS.pattern, *names]), KEYS.flags)
        self._known: dict[str, bool] = {}
        hints = [each.hint for each in (*PATTERNS, *scrubbing.patterns)]
        hints += [re.escape(fold(name.encode()).decode()) for name in scrubbing.keys]
        suspect = re.compile("|".join(hint for hint in hints if hint is not None).encode())
        self._suspect: Callable[[bytes], object] = suspect.search
        if None in hints:
            self._suspect = lambda _folded: True
        self._mark = MARK
        self._found: Counter[str] = Counter()

    def __call__(self, event: bytes) -> bytes:
        """Return the event without its secrets; the same object if it has none.

        Raises `ValueError` if a suspected event is not a JSON object.
        """
        folded = event.translate(_FOLD)
        if not self._suspect(folded) and not self._has_card(event, folded):
            return event
        record = orjson.loads(event)
        if not isinstance(record, dict):
            raise ValueError("an event is a JSON object")
        clean, found = self._clean(record, MARK)
        if not found:
            return event
        written = orjson.dumps(clean)
        if len(written) > MAX_EVENT_BYTES:
            written = orjson.dumps(self._clean(record, SHORT_MARK)[0])
        self.counts += found
        self.replaced += found.total()
        return written

    def _has_card(self, event: bytes, folded: bytes) -> bool:
        """Return whether there may be a card number, as digits in a row or in groups.

        Digits of a fraction and groups of a UUID do not count: one UUID in a hundred has them, and
        the spool's is in every event of its process.
        """
        if not self._cards:
            return False
        found = _GROUPS(folded)
        while found:
            at = found.start()
            if event[at] in _FIRST_DIGITS and event[at - 1 : at] != b"-":
                return True
            found = _GROUPS(folded, at + 1)
        at = folded.find(_RUN)
        while at >= 0:
            if event[at] in _FIRST_DIGITS and folded[at - 1 : at] != b".":
                return True
            at = folded.find(_RUN, at + len(_RUN))
        return False

    def _clean(self, record: dict[str, Any], mark: str) -> tuple[dict[str, Any], Counter[str]]:
        self._mark, self._found = mark, Counter()
        clean = {}
        for key, value in record.items():
            if key in KEPT:
                clean[key] = value
                continue
            clean[key] = self._value(value, key, secret=self._is_secret(key))
            if clean[key] is not value and key in _IDENTIFIERS and isinstance(clean[key], str):
                clean[key] = clean[key][:MAX_IDENTIFIER]
        return clean, self._found

    def _value(self, value: Any, key: str, *, secret: bool) -> Any:
        kind = type(value)
        if kind is str:
            return self._secret(value) if secret else self._text(value)
        if kind is dict:
            return {
                name: self._value(item, name, secret=secret or self._is_secret(name))
                for name, item in value.items()
            }
        if kind is list:
            return [self._value(item, key, secret=secret) for item in value]
        if (kind is int or kind is float) and key not in _NUMBERS:
            return self._number(value, secret=secret)
        return value

    def _secret(self, text: str) -> str:
        if not text or text == self._mark:
            return text
        self._found["key"] += 1
        return self._mark

    def _number(self, value: float, *, secret: bool) -> float | str:
        if secret:
            self._found["key"] += 1
        elif self._cards and type(value) is int and value > 0 and is_card(str(value)):
            self._found["card"] += 1
        else:
            return value
        return self._mark if self._mark is MARK else 0

    def _text(self, text: str) -> str:
        raw = text.encode()
        folded = raw.translate(_FOLD)
        if self._suspect(folded):
            for name, expression in self._patterns:
                text = expression.sub(self._replacing(name), text)
        if self._has_card(raw, folded):
            text = find_cards(text, lambda _digits: self._note("card"))
        return text

    def _replacing(self, name: str) -> Callable[[re.Match[str]], str]:
        def replace(found: re.Match[str]) -> str:
            whole = found[0]
            if "secret" not in found.re.groupindex:
                return self._note(name)
            if found["secret"] == self._mark or not found["secret"]:
                return whole
            begin = found.start()
            return (
                whole[: found.start("secret") - begin]
                + self._note(name)
                + whole[found.end("secret") - begin :]
            )

        return replace

    def _note(self, name: str) -> str:
        self._found[name] += 1
        return self._mark

    def _is_secret(self, key: str) -> bool:
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KNOWN_KEYS:
                self._known.clear()
            known = self._known[key] = self._keys.search(key) is not None
        return known


_IDENTIFIERS: Final = frozenset({"user_id", "agent_id", "session_id", "tool_id"})
_KNOWN_KEYS: Final = 1024
