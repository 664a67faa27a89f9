"""Episodes of recorded agent runs (docs/reference/files.md), and exported ones. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from memory.episodes.assembly import assemble
from memory.episodes.canonical import clean_text
from memory.episodes.export_fields import LAST_MS, BadEpisodeField, checked_fields
from memory.episodes.hashes import episode_id, hash64
from memory.episodes.record import Episode
from memory.episodes.run_event import RunEvent

EXPORT: Final = "headstart.episodes"
"""In the first line of a file of exported episodes: `{"format": EXPORT, "version": 1}`."""
_STEP_MS: Final = 1
_ROOM_MS: Final = 86_400_000
"""Before the last time that is stored: for the steps of a run whose time is the last."""
_MAX_NAME: Final = 256


class NotARun(ValueError):
    """A record that is no agent run, or no exported episode; the message says why."""


def episode_of_run(record: object, tenant: str, number: int, at: int) -> Episode:
    """Return the episode of the run in line `number`, with the ids that the run has.

    `at`: Unix ms of a run without times. Raises `NotARun`.
    """
    if not isinstance(record, Mapping) or not isinstance(record.get("steps"), list):
        raise NotARun('a run is an object with "steps", a list; `headstart import` makes them')
    source, domain = (_name(record, key) for key in ("source", "domain"))
    own = record.get("run_id")
    run_id = str(own) if own is not None else f"{record.get('trial') or 0}/{number}"
    workflow_id = clean_text(f"{source}/{record.get('task_id')}/{run_id}")[:_MAX_NAME]
    started = record.get("started_at")
    begin = started if type(started) is int and 0 < started < LAST_MS - _ROOM_MS else at
    events = list(_events(record, f"{tenant}/{workflow_id}", begin))
    return assemble(tenant, domain[:_MAX_NAME], workflow_id, events)


def _events(record: Mapping[str, Any], name: str, begin: int) -> Iterator[RunEvent]:
    agent = record.get("agent_model")
    agent = agent[:_MAX_NAME] if isinstance(agent, str) else None
    query: str | None = None
    at = begin
    for place, step in enumerate(record["steps"]):
        if not isinstance(step, Mapping) or not isinstance(step.get("tool"), str):
            raise NotARun(f"steps[{place}] is no object with a tool")
        said = step.get("user_before")
        if query is None and isinstance(said, list):
            query = next((each for each in said if isinstance(each, str) and each.strip()), None)
        ended = step.get("returned_at")
        at = max(at + _STEP_MS, ended if type(ended) is int and ended < LAST_MS - _ROOM_MS else 0)
        data = {"arguments": step.get("args")}
        yield _event(name, place, at, "task_complete", agent, data, step["tool"],
                     not step.get("error"))  # fmt: skip
    end: dict[str, Any] = {"context": {"domain": _name(record, "domain")}}
    if query is not None:
        end["query"] = query
    if outcome := _outcome(record.get("reward")):
        end["outcome"] = outcome
    yield _event(name, len(record["steps"]), at + _STEP_MS, "workflow_complete", agent, end)


def _event(
    name: str, place: int, at: int, kind: str, agent: str | None, data: Mapping[str, Any],
    tool: str | None = None, success: bool | None = None,
) -> RunEvent:  # fmt: skip
    own = str(UUID(int=hash64(name, str(place)) & (2**64 - 1)))
    return RunEvent(at, own, kind, None, None, agent, None, tool, success, None, data)


def _outcome(reward: object) -> str | None:
    if not isinstance(reward, int | float) or isinstance(reward, bool):
        return None
    return "success" if reward >= 1 else "partial" if reward > 0 else "failure"


def _name(record: Mapping[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value:
        raise NotARun(f"{key} must be a text that is not empty")
    return clean_text(value)


def exported(episode: Episode) -> dict[str, Any]:
    """Return an episode as a line of an export."""
    return {**episode._asdict(), "calls": [list(call) for call in episode.calls]}


def from_export(record: object, tenant: str | None = None) -> Episode:
    """Return the episode of a line of an export, as one of `tenant` if given. Raises `NotARun`."""
    if not isinstance(record, Mapping):
        raise NotARun("an episode is an object")
    try:
        given = checked_fields(record)
    except BadEpisodeField as error:
        raise NotARun(str(error)) from error
    given["tenant"] = tenant or given["tenant"]
    keys = [given[name] for name in ("tenant", "workflow_type", "workflow_id")]
    if not all(0 < len(each) <= _MAX_NAME for each in keys):
        raise NotARun("tenant, workflow_type and workflow_id must be texts of 1 to 256 characters")
    given["id"] = episode_id(*keys)
    return Episode(**given)
