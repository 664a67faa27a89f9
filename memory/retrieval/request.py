"""`MemoryQuery`: what to look for, checked before anything is asked of a service. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from headstart.events.schema import MAX_IDENTIFIER, EventType
from memory.episodes.canonical import clean_text, cleaned
from memory.episodes.hashes import CONTEXT_KEYS
from memory.episodes.record import Outcome

Mode = Literal["exact", "fuzzy", "lexical", "vector", "hybrid"]
MODES: Final[tuple[Mode, ...]] = get_args(Mode)
OUTCOMES: Final[tuple[Outcome, ...]] = get_args(Outcome)
EVENT_TYPES: Final[tuple[str, ...]] = get_args(EventType)
MOST: Final = 500
"""Largest k."""
MOST_PAIRS: Final = 256
"""Pairs of a context that are compared one by one."""
MOST_NAMES: Final = 100
"""Concepts, domains or keys of one request."""


class InvalidQuery(ValueError):
    """A request that cannot be answered; the message names the field and what it may be."""


@dataclass(frozen=True, kw_only=True)
class MemoryQuery:
    """A request for the episodes of one tenant. Raises `InvalidQuery` where it makes no sense.

    `text`: what the user asks; `context`: of the run. By `mode`:

    - `exact`: equal folded text, equal context, or both, whichever is given; newest first. Contexts
      are equal if workflow type and the values of `keys` are.
    - `fuzzy`: contexts with the most equal pairs; those that contain all of `context` come first.
    - `lexical`: texts that share words.
    - `vector`: the most similar texts.
    - `hybrid`: vector, words and equal context, fused by their ranks.
    """

    text: str = ""
    context: Mapping[str, Any] | None = None
    tenant: str = "default"
    user_id: str | None = None
    """Of the run that asks: the user's profile says what may be retrieved for it."""
    agent_id: str | None = None
    """Of that run; None: it names no agent."""
    mode: Mode = "hybrid"
    k: int = 10
    """From 1 to 500."""
    keys: Sequence[str] = CONTEXT_KEYS
    workflow_type: str | None = None
    tool: str | None = None
    """Only runs that called it."""
    outcome: Outcome | None = None
    min_confidence: float | None = None
    since: int | None = None
    """Only runs that ended then or later, Unix ms."""
    concepts: Sequence[str] = ()
    """Only episodes with one of them; so too `domains`."""
    domains: Sequence[str] = ()
    event_types: Sequence[str] = ()
    """Only runs with a stored event of one of these types."""
    half_life_days: float | None = None
    """Age at which an episode counts half; None: age does not matter."""
    diversity: float = 0.0
    """From 0 to 1: how much a result's likeness to those before it counts against it."""

    def __post_init__(self) -> None:
        _check_kinds(self)
        _check_what_is_sought(self)
        for name in ("tenant", "workflow_type", "tool", "user_id", "agent_id"):
            _check_name(name, getattr(self, name))
        for name in ("concepts", "domains", "event_types", "keys"):
            _check_names(name, getattr(self, name))
        for event_type in self.event_types:
            _check_choice("event type", event_type, EVENT_TYPES)
        _check_numbers(self)
        object.__setattr__(self, "text", clean_text(self.text))
        if self.context is not None:
            object.__setattr__(self, "context", cleaned(dict(self.context)))


def _check_kinds(query: MemoryQuery) -> None:
    _check_choice("mode", query.mode, MODES)
    if query.outcome is not None:
        _check_choice("outcome", query.outcome, OUTCOMES)
    if not isinstance(query.text, str):
        raise InvalidQuery(f"text must be a string, not {type(query.text).__name__}")
    if query.context is not None and not isinstance(query.context, Mapping):
        raise InvalidQuery(f"context must be an object, not {type(query.context).__name__}")


def _check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InvalidQuery(f"{value!r:.100} is no {name}; it is one of: {', '.join(choices)}")


def _check_what_is_sought(query: MemoryQuery) -> None:
    if query.mode in {"lexical", "vector", "hybrid"} and not query.text.strip():
        raise InvalidQuery(f"the query is empty; mode {query.mode} needs a text")
    if query.mode == "fuzzy":
        if not query.context:
            raise InvalidQuery("the context is empty; mode fuzzy needs a context")
        if len(query.context) > MOST_PAIRS:
            raise InvalidQuery(
                f"the context has {len(query.context):,} keys; mode fuzzy compares at most "
                f"{MOST_PAIRS}"
            )
    if query.mode == "exact":
        if query.context is None and not query.text.strip():
            raise InvalidQuery("the query is empty; mode exact needs a text, a context, or both")
        if query.context is not None and query.workflow_type is None:
            raise InvalidQuery("mode exact needs a workflow type to compare contexts")


def _check_name(name: str, value: object) -> None:
    if value is None and name != "tenant":
        return
    if not isinstance(value, str) or not value or len(value) > MAX_IDENTIFIER:
        raise InvalidQuery(f"{name} must be a text of 1 to {MAX_IDENTIFIER} characters")
    if any(each in value for each in "\0\x1f") or clean_text(value) != value:
        raise InvalidQuery(f"{name} must not contain 0x00, 0x1f or half of a surrogate pair")


def _check_names(name: str, values: object) -> None:
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidQuery(f"{name} must be a list of texts")
    if len(values) > MOST_NAMES:
        raise InvalidQuery(f"{name} has {len(values):,} entries; at most {MOST_NAMES} are allowed")
    for value in values:
        _check_name(name, value)


def _check_numbers(query: MemoryQuery) -> None:
    if isinstance(query.k, bool) or not isinstance(query.k, int) or not 1 <= query.k <= MOST:
        raise InvalidQuery(f"k must be a whole number from 1 to {MOST}, not {_shown(query.k)}")
    _check_range("min_confidence", query.min_confidence, 0, 1)
    _check_range("diversity", query.diversity, 0, 1)
    if query.diversity and query.mode not in {"vector", "hybrid"}:
        raise InvalidQuery("diversity compares vectors; it needs mode vector or hybrid")
    _check_range("since", query.since, 0, 253_402_300_799_999)
    _check_range("half_life_days", query.half_life_days, 0.001, 1e6)


def _check_range(name: str, value: object, low: float, high: float) -> None:
    if value is None and name != "diversity":
        return
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and low <= value <= high):  # type: ignore[operator]
        raise InvalidQuery(f"{name} must be a number from {low:g} to {high:g}, not {_shown(value)}")


def _shown(value: object) -> str:
    """Return a value for a message; of a number of thousands of digits its type."""
    try:
        return f"{value!r:.100}"
    except ValueError:
        return f"such an {type(value).__name__}"
