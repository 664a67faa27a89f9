"""What a user has corrected in the memory of a run. Pure.

A correction is an event: a `user_feedback` of the run with `data.correction`, an object with the
corrected fields. Events are never changed, so an episode stays a function of its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from memory.episodes.reward import REWARDS, Told
from memory.episodes.run_event import RunEvent

TEXTS: Final = ("query", "response")
"""Corrected by another text, or by null: there is none."""
LISTS: Final = ("concepts", "domains", "insights")
"""Corrected by another list of texts."""
CORRECTABLE: Final = (*TEXTS, "outcome", *LISTS)


class InvalidCorrection(ValueError):
    """A correction that cannot be applied; the message names the field and what it may be."""


def require_correction(changes: Mapping[str, Any]) -> None:
    """Raise `InvalidCorrection` unless every field can be corrected in this way."""
    if not changes:
        raise InvalidCorrection(f"nothing is corrected; give one of: {', '.join(CORRECTABLE)}")
    for name, value in changes.items():
        if name not in CORRECTABLE:
            raise InvalidCorrection(
                f"{name} cannot be corrected; what can be is: {', '.join(CORRECTABLE)}"
            )
        if not _is_valid(name, value):
            raise InvalidCorrection(f"{name} must be {_meant(name)}, not {value!r:.100}")


def is_correction(event: RunEvent, content: Mapping[str, Any]) -> bool:
    """Return whether an event corrects its run."""
    return event.event_type == "user_feedback" and isinstance(content.get("correction"), Mapping)


def owner_of(told: Told) -> str | None:
    """Return the user of a run: that of the first event that names one and is no correction.

    A correction makes its sender no owner, else anybody could correct a run that names no user.
    """
    for event, content in told:
        if event.user_id and not is_correction(event, content):
            return event.user_id
    return None


def corrections_of(told: Told, user_id: str | None) -> dict[str, Any]:
    """Return the corrected fields of a run with their last values.

    Only those that `user_id`, its owner, has sent count; values that are not valid are left out.
    """
    found: dict[str, Any] = {}
    for event, content in told:
        if event.user_id == user_id and is_correction(event, content):
            for name, value in content["correction"].items():
                if name in CORRECTABLE and _is_valid(name, value):
                    found[name] = value
    return found


def last_of_run(told: Told) -> RunEvent:
    """Return the last event of a run that is no correction; the very last one if all are."""
    found = told[-1][0]
    for event, content in told:
        if not is_correction(event, content):
            found = event
    return found


def _is_valid(name: str, value: object) -> bool:
    if name in TEXTS:
        return value is None or (isinstance(value, str) and not _is_blank(value))
    if name == "outcome":
        return isinstance(value, str) and value in REWARDS
    return isinstance(value, list) and _are_texts(value)


def _is_blank(text: str) -> bool:
    return not text or text.isspace()


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(each, str) and each for each in values)


def _meant(name: str) -> str:
    if name in TEXTS:
        return "a text that is not empty, or null"
    if name == "outcome":
        return f"one of: {', '.join(REWARDS)}"
    return "a list of texts that are not empty"
