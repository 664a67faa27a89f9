"""Names in an outcome that are nearly those of a field or a level, and what they were meant to be.

Keys of a context that are content (`customer_id`, `user_tier`) are near to none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from difflib import SequenceMatcher
from functools import lru_cache
from typing import Any, Final

from headstart.arguments.checks import OTHER_NAMES
from replay.files.times import iso_ms

_OTHER: Final = {
    **{name: meant for name, meant in OTHER_NAMES.items() if name != "id"},  # may be the row's own
    "timestamp": "at", "datetime": "at", "time": "at", "date": "at", "ts": "at",
    "saved": "gain", "wasted": "cost", "conf": "confidence", "probability": "confidence",
    "started": "speculated", "startable": "not_startable",
}  # fmt: skip
_MAY_BE_CONTENT: Final = frozenset(("time", "date", "ts", "started"))
_TRUTHS: Final = frozenset(("true", "false", "1", "0", "1.0", "0.0", "yes", "no", "t", "f"))
_WORDS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[\W_]+")
_AROUND: Final = re.compile(
    r"^(was|is|did)_|_(ms|s|secs?|seconds|millis|milliseconds|us|micros|ns|nanos|minutes)$"
)
"""Prefixes and suffixes of a field's name that are only its type or unit."""


def meant(name: str, value: Any, known: Sequence[str]) -> str | None:
    """Return the one of the known names that a name with a value stands for; None for content."""
    found = _meant(name, tuple(known))
    if found is not None and snake(name) in _MAY_BE_CONTENT:
        fits = str(value).strip().lower() in _TRUTHS if found == "speculated" else _is_time(value)
        return found if fits else None
    return found


@lru_cache(maxsize=1_000)
def snake(name: str) -> str:
    """Return a name in small letters with `_` between its words: `user_id` of `User ID`."""
    return _WORDS.sub("_", unicodedata.normalize("NFKC", name)).strip("_").casefold()


@lru_cache(maxsize=1_000)
def _meant(name: str, known: tuple[str, ...]) -> str | None:
    form = snake(name)
    for each in dict.fromkeys((form, _AROUND.sub("", form), form.replace("_", ""))):
        for other in (each, _OTHER.get(each, f"{each}_id"), each.removesuffix("_id")):
            if other in known:
                return other
    plain = _plain(form)
    return next((each for each in known if _plain(each) == plain or _mistyped(form, each)), None)


def _plain(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "").removesuffix("s")


def _mistyped(name: str, meant: str) -> bool:
    """Return whether a slip of the hand or two makes one of the other.

    A word of up to three letters has to have the same letters: `user_ip` is not `user_id`.
    """
    words, others = name.split("_"), meant.split("_")
    if abs(len(name) - len(meant)) > 1:
        return len(words) == 1 < len(others) and _mistyped(name, "".join(others))
    if len(meant) < 5:  # `host` is not `cost`
        return len(name) == len(meant) and set(name) == set(meant)
    if len(words) != len(others):
        return len(words) == 1 and _ratio(name, meant.replace("_", "")) >= 0.88
    for word, other in zip(words, others, strict=True):
        same = set(word) == set(other) if len(other) < 4 else _ratio(word, other) >= 0.75
        if word != other and not same:
            return False
    return _ratio(name, meant) >= (0.8 if len(name) == len(meant) else 0.88)


def _ratio(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _is_time(value: Any) -> bool:
    if isinstance(value, str):
        return iso_ms(value) is not None or re.fullmatch(r"\s*\d{9,}(\.\d*)?\s*", value) is not None
    return isinstance(value, int | float) and value >= 1e8
