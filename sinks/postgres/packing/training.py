"""Trains the dictionary of a tenant on some of its runs, without what is private to few users.

A dictionary outlives the users whose runs it was trained on, so it may only contain what several of
them have in common: the keys and values that occur in runs of at least `MIN_WRITERS` writers. All
others are blank in the samples.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
import zstandard

from sinks.postgres.packing.trace_format import PackedEvent, encode_events

MIN_WRITERS: Final = 3
"""Users, else sessions, else runs, that must have a value in common."""
MIN_RUNS: Final = 50
"""Fewer are packed without a dictionary."""
WANTED_RUNS: Final = 400
"""A dictionary of fewer is replaced by the next version when there are so many."""
_LARGEST: Final = 16_384
"""64 KB make runs 2 % smaller, and are a burden for small tenants."""
_SHARE: Final = 64
"""A dictionary is at most this part of its samples."""
_SEGMENT: Final = 256
_MATCHED: Final = 8
"""COVER's k and d. Fixed, because the search for the best takes 3 s and gains 1 %."""
_SMALLEST: Final = 512


class SampledRun(NamedTuple):
    """A run to train on."""

    workflow_id: str
    events: Sequence[PackedEvent]

    @property
    def writer(self) -> str:
        """The user, else the session, else the run itself."""
        users = (event.user_id for event in self.events if event.user_id)
        sessions = (event.session_id for event in self.events if event.session_id)
        return next(users, None) or next(sessions, None) or self.workflow_id


def train_dictionary(runs: Sequence[SampledRun], number: int) -> bytes | None:
    """Return a dictionary with the id `number`; None if the runs have too little in common."""
    samples = common_samples(runs)
    size = min(_LARGEST, sum(map(len, samples)) // _SHARE)
    if len(samples) < MIN_RUNS or size < _SMALLEST:
        return None
    try:
        trained = zstandard.train_dictionary(
            size, [*samples], k=_SEGMENT, d=_MATCHED, dict_id=number, level=9
        )
    except zstandard.ZstdError:
        return None
    return bytes(trained.as_bytes())


def common_samples(runs: Sequence[SampledRun]) -> list[bytes]:
    """Return the content of each run's frame, blank where a value is private to few writers."""
    writers: defaultdict[Any, set[str]] = defaultdict(set)
    for run in runs:
        own = run.writer
        for event in run.events:
            for value in _values(event):
                if len(known := writers[value]) < MIN_WRITERS:
                    known.add(own)
    common = {value for value, known in writers.items() if len(known) >= MIN_WRITERS}
    return [
        encode_events([_blanked(event, common.__contains__) for event in run.events])
        for run in runs
    ]


def _values(event: PackedEvent) -> Iterator[Any]:
    yield from (each for each in event[2:8] if each is not None)
    for text in (event.data, event.extra):
        if text:
            yield from _leaves(_parsed(text))


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # nested too deep
        return {}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key
            yield from _leaves(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield _leaf(value)


def _leaf(value: Any) -> Any:
    """Return numbers so that 1 is not the text "1"."""
    return value if isinstance(value, str) else (value,)


def _blanked(event: PackedEvent, common: Callable[[Any], bool]) -> PackedEvent:
    def shared(name: str | None) -> str | None:
        return name if name is None or common(name) else ""

    return event._replace(
        event_type=shared(event.event_type) or "",
        task_id=shared(event.task_id),
        user_id=shared(event.user_id),
        agent_id=shared(event.agent_id),
        session_id=shared(event.session_id),
        tool_id=shared(event.tool_id),
        confidence=None,
        data=_rewritten(event.data, common),
        extra=event.extra and _rewritten(event.extra, common),
    )


def _rewritten(text: str, common: Callable[[Any], bool]) -> str:
    return _spaced(_blank(_parsed(text), common))


def _blank(value: Any, common: Callable[[Any], bool]) -> Any:
    if isinstance(value, Mapping):
        return {key if common(key) else "": _blank(inner, common) for key, inner in value.items()}
    if isinstance(value, list):
        return [_blank(inner, common) for inner in value]
    if isinstance(value, str):
        return value if common(value) else ""
    if value is None or isinstance(value, bool) or common(_leaf(value)):
        return value
    return 0


def _spaced(value: Any) -> str:
    """Return JSON with the white space that Postgres gives a jsonb."""
    return json.dumps(value, ensure_ascii=False)
